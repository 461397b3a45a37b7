"""`codebutler send`: a message from a local script, as the operator of this machine."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from codebutler.cli.talk import talk
from codebutler.cli.which import known_commands, known_repositories
from codebutler.control.messages import SendRequest
from codebutler.domain.errors import EXIT_FAILED


def run(
    repo: Annotated[str, typer.Argument(help="A repository's name.", autocompletion=known_repositories)],
    text: Annotated[
        str,
        typer.Argument(help="What to say; `-` reads standard input.", autocompletion=known_commands),
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Print the answer; fail if the run fails.")] = False,
) -> None:
    """Post a message in a repository's channel as the operator; it is answered like anybody's message."""
    message = sys.stdin.read() if text == "-" else text
    if not message.strip():
        raise typer.BadParameter("there is nothing to send", param_hint="TEXT")
    if not wait:
        talk(SendRequest(repo=repo, text=message), lambda _: None)
        return
    from codebutler.cli.chatroom.once import ask_once

    told = ask_once(repo, message)
    told.show()
    if not told.ok:
        raise typer.Exit(EXIT_FAILED)

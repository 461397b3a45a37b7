"""`codebutler send`: a message from a local script, as the operator of this machine."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from codebutler.cli.output import printable_lines
from codebutler.cli.talk import talk
from codebutler.control.wire import ControlReply, Said, SendRequest
from codebutler.errors import EXIT_FAILED


def run(
    repo: Annotated[str, typer.Argument(help="A repository's name.")],
    text: Annotated[str, typer.Argument(help="What to say; `-` reads it from standard input.")],
    wait: Annotated[bool, typer.Option("--wait", help="Print the answer; fail if the turn fails.")] = False,
) -> None:
    """Say something in a repository's channel as the operator; it starts a turn like anybody's message."""
    message = sys.stdin.read() if text == "-" else text
    if not message.strip():
        raise typer.BadParameter("there is nothing to send", param_hint="TEXT")
    done = talk(SendRequest(repo=repo, text=message, wait=wait), _print)
    if not done.ok:
        raise typer.Exit(EXIT_FAILED)


def _print(reply: ControlReply) -> None:
    if isinstance(reply, Said) and not reply.progress:
        typer.echo(printable_lines(reply.text))

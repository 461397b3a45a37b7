"""`codebutler chat`, `send` and `stop`: talk to a repository's agent from this machine, as its operator."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from codebutler.cli.context import home, known_commands, known_repositories, repository, talk
from codebutler.config.paths import Home
from codebutler.control.messages import SendRequest, StopRequest
from codebutler.domain.errors import EXIT_FAILED


def chat(
    repo: Annotated[
        str,
        typer.Argument(
            help="A repository's name; optional if there is only one.", autocompletion=known_repositories
        ),
    ] = "",
    fresh: Annotated[
        bool | None,
        typer.Option(
            "--new/--continue",
            help="Start a new conversation, or continue the last one. Defaults to continuing at a "
            "terminal, and to a new one from a pipe.",
            show_default=False,
        ),
    ] = None,
    past: Annotated[int, typer.Option("-n", min=0, max=200, help="Number of earlier messages to show.")] = 10,
) -> None:
    """Talk to a repository's agent here; its channel shows the conversation too.

    At a terminal: Ctrl-C stops the run, or leaves if there is none; Ctrl-D leaves. A line that ends in a
    backslash, or an open ``` fence, continues on the next. Answer prompts by number or text.

    From a pipe: all of standard input is one message; its answer is printed, and the exit code is that of the run.
    """
    where, entry = home(), repository(repo)
    if sys.stdin.isatty():
        from codebutler.cli.chatroom.at_terminal import converse

        converse(where, entry.name, fresh=bool(fresh), past=past)
    else:
        _ask_once(where, entry.name, fresh=fresh is not False)


def _ask_once(where: Home, repo: str, *, fresh: bool) -> None:
    from codebutler.cli.chatroom.link import ask_once, read_diary, write_diary

    text = sys.stdin.read()
    if not text.strip():
        raise typer.BadParameter("standard input is empty")
    kept = read_diary(where)
    told = ask_once(repo, text.strip("\n"), None if fresh else kept.threads.get(repo))
    if told.thread:
        write_diary(where, kept.with_thread(repo, told.thread))
    told.show()
    if not told.ok:
        raise typer.Exit(EXIT_FAILED)


def send(
    repo: Annotated[str, typer.Argument(help="A repository's name.", autocompletion=known_repositories)],
    text: Annotated[
        str,
        typer.Argument(help="The message; `-` reads standard input.", autocompletion=known_commands),
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Print the answer; fail if the run fails.")] = False,
) -> None:
    """Post a message in a repository's channel as the operator; it is answered like any other message."""
    message = sys.stdin.read() if text == "-" else text
    if not message.strip():
        raise typer.BadParameter("there is nothing to send", param_hint="TEXT")
    if not wait:
        talk(SendRequest(repo=repo, text=message))
        return
    from codebutler.cli.chatroom.link import ask_once

    told = ask_once(repo, message)
    told.show()
    if not told.ok:
        raise typer.Exit(EXIT_FAILED)


def stop(
    repo: Annotated[
        str, typer.Argument(help="A repository's name, or `all`.", autocompletion=known_repositories)
    ],
) -> None:
    """Stop a repository's running work and cancel what is queued; the supervisor keeps running."""
    done = talk(StopRequest(repo=repo))
    typer.echo(done.text)

"""`codebutler chat`, `send` and `stop`: a repository's agent from this machine, as its operator."""

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
            help="A repository's name; not needed if there is one.", autocompletion=known_repositories
        ),
    ] = "",
    fresh: Annotated[
        bool | None,
        typer.Option(
            "--new/--continue",
            help="Begin a new conversation, or continue the last one. "
            "At a terminal the last one continues; from a pipe a new one begins.",
            show_default=False,
        ),
    ] = None,
    past: Annotated[int, typer.Option("-n", min=0, max=200, help="Number of earlier messages to show.")] = 10,
) -> None:
    """Talk to a repository's agent here; its channel in Slack shows the conversation too.

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
        raise typer.BadParameter("there is nothing on standard input to say")
    kept = read_diary(where)
    told = ask_once(repo, text.strip("\n"), None if fresh else kept.threads.get(repo))
    if told.thread_ts:
        write_diary(where, kept.with_thread(repo, told.thread_ts))
    told.show()
    if not told.ok:
        raise typer.Exit(EXIT_FAILED)


def send(
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
    """Stop running and cancel queued work of a repository; the supervisor goes on."""
    done = talk(StopRequest(repo=repo))
    typer.echo(done.text)

"""`codebutler chat`: the same conversation in a terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from codebutler.cli.which import known_repositories
from codebutler.config.paths import Home
from codebutler.config.registry import Registry, find
from codebutler.domain.errors import EXIT_FAILED, RegistryError

if TYPE_CHECKING:
    from codebutler.config.registry import RepoEntry


def run(
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
    home = Home.from_env(os.environ)
    entry = _entry(home, repo)
    if sys.stdin.isatty():
        from codebutler.cli.chatroom.at_terminal import converse

        converse(home, entry.name, fresh=bool(fresh), past=past)
    else:
        _ask_once(home, entry.name, fresh=fresh is not False)


def _entry(home: Home, repo: str) -> RepoEntry:
    entries = Registry(home).load()
    if not repo and len(entries) != 1:
        names = ", ".join(entry.name for entry in entries) or "none; add one with `codebutler add-repo`"
        raise RegistryError(f"which repository? Registered: {names}")
    return find(entries, repo or entries[0].name)


def _ask_once(home: Home, repo: str, *, fresh: bool) -> None:
    from codebutler.cli.chatroom import diary
    from codebutler.cli.chatroom.once import ask_once

    text = sys.stdin.read()
    if not text.strip():
        raise typer.BadParameter("there is nothing on standard input to say")
    kept = diary.read(home)
    told = ask_once(repo, text.strip("\n"), None if fresh else kept.threads.get(repo))
    if told.thread_ts:
        diary.write(home, kept.with_thread(repo, told.thread_ts))
    told.show()
    if not told.ok:
        raise typer.Exit(EXIT_FAILED)

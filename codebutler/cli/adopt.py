"""``codebutler adopt``: continue a terminal's session in the repository's channel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from codebutler.cli.context import home, known_repositories, repository
from codebutler.cli.output import is_interactive, print_json, print_table, say
from codebutler.config.agent_sessions import PastSession, find_session, terminal_sessions
from codebutler.config.git_repo import repo_root
from codebutler.config.registry import Registry, RepoEntry
from codebutler.domain.errors import EXIT_FAILED, RegistryError

LISTED = 20
WORDS_CHARS = 70
ELSEWHERE = "{path} is not registered: run this in a registered repository, or name one with --repo"
NONE_HERE = "No Claude Code or Kimi Code session was started in a terminal in {path}."


def run(
    session: Annotated[
        str, typer.Argument(help="A session ID or its beginning; if omitted, lists them and asks.")
    ] = "",
    repo: Annotated[
        str,
        typer.Option(
            help="A repository's name; defaults to this directory's.",
            autocompletion=known_repositories,
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON; adopt nothing.")] = False,
) -> None:
    """Continue a Claude Code or Kimi Code session, started in a terminal in this repository, in a thread of
    its channel.

    Without an ID, list them, newest first, and ask which one.
    """
    entry = repository(repo) if repo else _here()
    where = Path(entry.path)
    if session and not as_json:
        _adopt(entry, find_session(Path.home(), where, session))
        return
    found = terminal_sessions(Path.home(), where)[:LISTED]
    if as_json:
        print_json(
            [{"id": e.id, "agent": e.agent, "changed": e.changed_s, "first_words": _words(e)} for e in found]
        )
    elif not found:
        say(NONE_HERE.format(path=where))
    else:
        print_table(("", "AGENT", "AGE", "FIRST WORDS", "SESSION"), _rows(found, time.time()))
        if is_interactive():
            _ask(entry, found)
        else:
            say("Continue one in the channel with `codebutler adopt SESSION`.")


def _here() -> RepoEntry:
    """The registered repository that this directory is in. Raises CodeButlerError."""
    root = repo_root(Path())
    for entry in Registry(home()).load():
        if Path(entry.path) == root:
            return entry
    raise RegistryError(ELSEWHERE.format(path=root))


def _rows(found: Sequence[PastSession], now_s: float) -> list[tuple[str, ...]]:
    return [
        (str(number), each.agent, _age(now_s - each.changed_s), _words(each), each.id)
        for number, each in enumerate(found, start=1)
    ]


def _words(session: PastSession) -> str:
    line = " ".join(session.asked[0].split())
    return line if len(line) <= WORDS_CHARS else f"{line[: WORDS_CHARS - 1]}…"


def _age(seconds: float) -> str:
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length_s:
            return f"{int(seconds // length_s)}{unit}"
    return "now"


def _ask(entry: RepoEntry, found: Sequence[PastSession]) -> None:
    from codebutler.cli.prompts import ask

    answer = ask("Which one? (a number; Enter for none)")
    if not answer:
        return
    if not answer.isdecimal() or not 1 <= int(answer) <= len(found):
        raise typer.BadParameter(f"pass a number from 1 to {len(found)}")
    _adopt(entry, found[int(answer) - 1])


def _adopt(entry: RepoEntry, session: PastSession) -> None:
    """Send the command in the channel, as the operator, and show the answer."""
    from codebutler.cli.chatroom.link import ask_once

    told = ask_once(entry.name, f"!continue {session.id}")
    told.show()
    if not told.ok:
        raise typer.Exit(EXIT_FAILED)

"""`codebutler memory`: show and forget what is remembered about a repository."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Struct

from codebutler.cli.command import App
from codebutler.cli.context import known_repositories, repository
from codebutler.cli.output import age, notice, print_json, print_line, print_table
from codebutler.config.chats import message_url
from codebutler.config.memory import FactChange, MemoryFile, apply_changes, facts_of
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.refs import NO_CHANNEL, NOWHERE, ConversationRef, MessageRef

app = App("Show what agents remember about a repository, and forget some of it.")
REPO = typer.Argument(
    help="A repository's name; optional if there is only one.", autocompletion=known_repositories
)


class MemoryEntry(Struct, frozen=True):
    """A fact, and its origin; ``at`` is ISO 8601. ``name``: an agent's key for it."""

    text: str
    name: str = ""
    channel: ConversationRef = NO_CHANNEL
    thread: MessageRef = NOWHERE
    at: str = ""

    @property
    def link(self) -> str:
        """The thread it comes from, "" if none."""
        return message_url(self.channel, self.thread) if self.thread else ""

    def age(self, now: datetime) -> str:
        """Its age, "" if a person wrote it into the file."""
        return age((now - datetime.fromisoformat(self.at)).total_seconds()) if self.at else ""


@app.command()
def show(
    repo: Annotated[str, REPO] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the facts that every new session gets, with numbers, ages and threads, like `!memory`."""
    file = MemoryFile(Path(repository(repo).path))
    entries, now = _entries(file), datetime.now(UTC)
    if as_json:
        print_json([_fact_json(number, entry) for number, entry in enumerate(entries, 1)])
    elif not entries:
        print_line(f"Nothing is remembered yet: add facts to {file.path}, one per line, each after a dash.")
    else:
        rows = [
            (str(number), entry.age(now), entry.text, entry.link) for number, entry in enumerate(entries, 1)
        ]
        print_table(("N", "AGE", "FACT", "THREAD"), rows)


@app.command()
def forget(
    number: Annotated[int, typer.Argument(help="The fact's number in `codebutler memory show`.", min=1)],
    repo: Annotated[str, REPO] = "",
) -> None:
    """Forget one fact."""
    file = MemoryFile(Path(repository(repo).path))
    facts = facts_of(file.read())
    if len(facts) < number <= len(_entries(file)):
        raise CodeButlerError(
            f"fact {number} is in the worker's store, which this command does not change: "
            f"send `!memory forget {number}` in the repository's channel"
        )
    if number > len(facts):
        raise CodeButlerError(f"there is no fact {number}: `codebutler memory show` lists them")
    # By its words: the numbers may have changed since.
    applied = file.change(partial(apply_changes, (FactChange(facts[number - 1]),)))
    if not applied.applied:
        raise CodeButlerError("the memory has just changed: run `codebutler memory show` again")
    print_line(f"Forgotten: {facts[number - 1]}")


def _entries(file: MemoryFile) -> list[MemoryEntry]:
    """The facts of the file, then those that agents keep by name: in the order of `!memory`."""
    facts = facts_of(file.read())
    try:
        # By name: the parent's packages do not import the worker's.
        recalled = importlib.import_module("codebutler_worker.memory.learning").read_stored_memory(file.repo)
    except CodeButlerError as error:
        notice(f"cannot tell where facts come from: {error}")
        return [MemoryEntry(fact) for fact in facts]
    return [_file_entry(fact, recalled.lines.get(fact)) for fact in facts] + [
        MemoryEntry(f"{row.key}: {row.value}", row.key, row.channel_id, row.thread, row.updated_at)
        for row in recalled.facts
    ]


def _file_entry(fact: str, row: Any) -> MemoryEntry:
    if row is None:
        return MemoryEntry(fact)
    return MemoryEntry(fact, "", row.channel_id, row.thread, row.added_at)


def _fact_json(number: int, entry: MemoryEntry) -> dict[str, object]:
    return {
        "number": number,
        "fact": entry.text,
        "name": entry.name or None,
        "at": entry.at or None,
        "link": entry.link or None,
    }

"""A command, told from what is not one, and its handler found. Which there are: codebutler.domain.commands."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from codebutler.config.schema import RepoSettings
from codebutler.domain.commands import WORDS, Word, nearest, usage_error
from codebutler.domain.message import Message
from codebutler.domain.model import Command
from codebutler_worker.present.lines import code, one_line
from codebutler_worker.runtime.deferred import Answer
from codebutler_worker.runtime.turns import Todo
from codebutler_worker.store.rows import DeferredRow, TurnRow, TurnState
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command in its context. ``conversation`` is None where it was said outside any thread. ``place`` may be for
    ``user``'s eyes only. ``message``: the id of the message that says it, "" for a slash command."""

    uow: UnitOfWork
    settings: RepoSettings
    command: Command
    place: ThreadPlace
    conversation: str | None
    user: str = ""
    message: str = ""

    @property
    def argument(self) -> str:
        """What follows the word."""
        return self.command.argument.strip()

    def reply(self, message: Message | str) -> Todo:
        """Answer; nothing else is to be done."""
        self.uow.post(self.place, message)
        return Todo()

    def turns(self, *states: TurnState) -> list[TurnRow]:
        """The turns meant, oldest first: the conversation's, or all of the channel's."""
        found = self.uow.turns.in_states(*states)
        return [turn for turn in found if self.conversation in (None, turn.conversation)]

    def newest(self, limit: int) -> list[TurnRow]:
        """The newest turns of the conversation, or of the channel, newest first."""
        return self.uow.turns.newest(limit, self.conversation)

    def latest(self, limit: int) -> list[TurnRow]:
        """The newest turn of each conversation that the newest turns belong to, newest first."""
        found: dict[str, TurnRow] = {}
        for turn in self.newest(limit):
            found.setdefault(turn.conversation, turn)
        return list(found.values())

    def defer(self, argument: str = "") -> Todo:
        """Let the answer be found outside the transaction; it comes even if this process ends meanwhile."""
        row = DeferredRow(
            id=self.message or uuid.uuid4().hex,
            name=self.command.name,
            argument=argument,
            conversation=self.place.conversation,
            thread_ts=self.place.thread_ts,
            user_id=self.user,
            only_for=self.place.only_for,
            created_at=self.uow.stamp,
        )
        self.uow.deferred.add(row)
        return Todo(deferred=(row,))


Handler = Callable[[Invocation], Todo]


def understood(name: str, argument: str) -> bool:
    """Whether the word exists and may be followed by that."""
    word = WORDS.get(name)
    return word is not None and word.takes(argument) and not word.prefix


def run_command(asked: Invocation) -> Todo:
    """Do what was asked and reply. An unknown word gets the nearest one suggested, a wrong argument the usage; a prompt
    for an agent, or what the parent does, comes here only if it was said wrongly."""
    word = WORDS.get(asked.command.name)
    if word is None:
        near = nearest(asked.command.name)
        hint = f"Did you mean `!{near}`?" if near else "Say `!help` for what I know."
        return asked.reply(f"I do not know {code('!' + one_line(asked.command.name, 40))}. {hint}")
    handler = handler_of(word) if word.takes(asked.argument) else None
    return handler(asked) if handler else asked.reply(usage_error(word))


def handler_of(word: Word) -> Handler | None:
    """What does the word; None if that is no business of the worker's."""
    if word.runs != "worker" or not word.done_by:
        return None
    file, function = word.done_by
    found: Handler = getattr(_file(file), function)
    return found


def answer_of(name: str) -> Answer:
    """What finds a deferred command's answer: ``answer`` beside a handler ``run``, ``answer_diff`` beside ``diff``.
    Raises KeyError for what is no word."""
    file, function = WORDS[name].done_by
    found: Answer = getattr(_file(file), "answer" if function == "run" else f"answer_{function}")
    return found


def load() -> None:
    """Import every handler, for the fork server: what a worker imports itself it shares with nobody."""
    for word in WORDS.values():
        handler_of(word)


def _file(name: str) -> Any:
    return import_module(f".{name}", __package__)

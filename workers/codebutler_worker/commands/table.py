"""Recognises commands and finds their handlers. codebutler.domain.commands lists them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from importlib import import_module
from typing import Any

from msgspec import Struct

from codebutler.config.schema import RepoSettings
from codebutler.domain.command_help import nearest, usage_error
from codebutler.domain.commands import WORDS
from codebutler.domain.message import Message
from codebutler.domain.model import Command, File
from codebutler.domain.refs import NO_PERSON, PersonRef
from codebutler.domain.word import Word
from codebutler.text.wording import one_line
from codebutler_worker.changes.undo import LOOKED_AT, changed_by
from codebutler_worker.present.lines import code
from codebutler_worker.runtime.deferred import Answer
from codebutler_worker.runtime.turns import Todo
from codebutler_worker.store.rows import DeferredRow, TurnRow, TurnState, main_conversation
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork


class Invocation(Struct, frozen=True):
    """A command in its context. ``conversation`` is None outside threads. ``place`` may be visible to ``user`` only.
    ``message``: the ID of the message with the command, "" for a slash command or button; ``files``: those sent with
    it. ``run``: the turn that the pressed button names, "" for typed commands."""

    uow: UnitOfWork
    settings: RepoSettings
    command: Command
    place: ThreadPlace
    conversation: str | None
    user: PersonRef = NO_PERSON
    message: str = ""
    run: str = ""
    files: tuple[File, ...] = ()

    @property
    def argument(self) -> str:
        """The argument."""
        return self.command.argument.strip()

    @property
    def in_own_channel(self) -> bool:
        """Whether it came from the repository's channel, not from a direct message."""
        return self.place.conversation.startswith(f"{self.settings.channel_id}:")

    def reply(self, message: Message | str) -> Todo:
        """Reply, and nothing else."""
        self.uow.post(self.place, message)
        return Todo()

    def turns(self, *states: TurnState) -> list[TurnRow]:
        """The turns it is about, oldest first: the conversation's, with those of a race in it, or the channel's."""
        found = self.uow.turns.find(state=states)
        return [turn for turn in found if self.conversation in (None, main_conversation(turn.conversation))]

    def newest(self, limit: int) -> list[TurnRow]:
        """The newest turns of the conversation, or of the channel, newest first."""
        where = {} if self.conversation is None else {"conversation": self.conversation}
        return self.uow.turns.find(newest=limit, **where)

    def latest(self, limit: int) -> list[TurnRow]:
        """The newest turn of each conversation that the newest turns belong to, newest first."""
        found: dict[str, TurnRow] = {}
        for turn in self.newest(limit):
            found.setdefault(turn.conversation, turn)
        return list(found.values())

    def changed_run(self) -> TurnRow | None:
        """The run whose changes are meant: the named one, otherwise the newest that changed anything."""
        return self.uow.turns.get(self.run) if self.run else changed_by(self.newest(LOOKED_AT))

    def defer(self, argument: str = "") -> Todo:
        """Compute the answer outside the transaction; it arrives even if this process ends in the meantime."""
        row = DeferredRow(
            id=self.message or uuid.uuid4().hex,
            name=self.command.name,
            argument=argument,
            conversation=self.place.conversation,
            thread=self.place.thread,
            user_id=self.user,
            only_for=self.place.only_for,
            created_at=self.uow.stamp,
        )
        self.uow.deferred.add(row)
        return Todo(deferred=(row,))


Handler = Callable[[Invocation], Todo]


def is_valid_command(name: str, argument: str) -> bool:
    """Whether the command exists and accepts that argument."""
    word = WORDS.get(name)
    return word is not None and word.takes(argument) and (word.chooses or not word.prefix)


def run_command(invocation: Invocation) -> Todo:
    """Run it and reply. An unknown command gets the nearest one suggested, a wrong argument the usage. A prompt for
    an agent, or one of the parent's commands, comes here only if its argument was wrong."""
    word = WORDS.get(invocation.command.name)
    if word is None:
        near = nearest(invocation.command.name)
        hint = f"Did you mean `!{near}`?" if near else "`!help` lists the commands."
        return invocation.reply(
            f"Unknown command {code('!' + one_line(invocation.command.name, 40))}. {hint}"
        )
    handler = handler_of(word) if word.takes(invocation.argument) else None
    return handler(invocation) if handler else invocation.reply(usage_error(word))


def handler_of(word: Word) -> Handler | None:
    """The command's handler; None if the worker does not handle it."""
    if word.runs != "worker" or not word.done_by:
        return None
    file, function = word.done_by
    found: Handler = getattr(_module(file), function)
    return found


def answer_of(name: str) -> Answer:
    """What computes a deferred command's answer: ``answer`` beside a handler ``run``, ``answer_diff`` beside
    ``diff``. Raises KeyError for an unknown command."""
    file, function = WORDS[name].done_by
    found: Answer = getattr(_module(file), "answer" if function == "run" else f"answer_{function}")
    return found


def load() -> None:
    """Import every handler in the fork server: modules that a worker imports itself are not shared."""
    for word in WORDS.values():
        handler_of(word)


def _module(name: str) -> Any:
    return import_module(f".{name}", __package__)

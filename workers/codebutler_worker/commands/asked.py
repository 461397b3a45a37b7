"""A command in its context, and what every command does with it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from codebutler.config.schema import RepoSettings
from codebutler.domain.message import Message
from codebutler.domain.model import Command
from codebutler_worker.desk.draft import Draft, Place
from codebutler_worker.desk.todo import Todo
from codebutler_worker.store.rows import DeferredRow, TurnRow, TurnState


@dataclass(frozen=True, slots=True)
class Asked:
    """``conversation`` is None where it was said outside any thread. ``place`` may be for ``user``'s eyes only.
    ``message``: the id of the message that says it, "" for a slash command."""

    draft: Draft
    settings: RepoSettings
    command: Command
    place: Place
    conversation: str | None
    user: str = ""
    message: str = ""

    @property
    def argument(self) -> str:
        """What follows the word."""
        return self.command.argument.strip()

    def reply(self, message: Message | str) -> Todo:
        """Answer; nothing else is to be done."""
        self.draft.post(self.place, message)
        return Todo()

    def turns(self, *states: TurnState) -> list[TurnRow]:
        """The turns meant, oldest first: the conversation's, or all of the channel's."""
        found = self.draft.uow.turns.in_states(*states)
        return [turn for turn in found if self.conversation in (None, turn.conversation)]

    def newest(self, limit: int) -> list[TurnRow]:
        """The newest turns of the conversation, or of the channel, newest first."""
        return self.draft.uow.turns.newest(limit, self.conversation)

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
            created_at=self.draft.stamp,
        )
        self.draft.uow.deferred.add(row)
        return Todo(deferred=(row,))


Handler = Callable[[Asked], Todo]

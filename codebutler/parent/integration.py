"""Chats in the composition root: the parts of each, and the connections that bring their events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from msgspec import Struct

from codebutler.chat.chats import ChatConnection, Chats
from codebutler.chat.platform import ConnectedChat, Host, Integration, Opening, Platform
from codebutler.chat.terminal import Speaker
from codebutler.config.chats import ChatName, chat_of
from codebutler.config.schema import Config
from codebutler.domain.errors import ChatAuthError
from codebutler.domain.refs import ConversationRef, PersonRef
from codebutler.intake.dispatcher import Dispatcher
from codebutler.intake.intake import Intake
from codebutler.intake.records import Notes, OwnNotes
from codebutler.parent.apphome import AppHome, Cards, HomeSources
from codebutler.parent.moving import RepoMoves
from codebutler.parent.parts import Parts
from codebutler.parent.services import ParentServices
from codebutler.platform.tasks import Tasks, beside
from codebutler.protocol.messages import LogTag
from codebutler.schedule.commands import ScheduleCommands
from codebutler.schedule.hooks import HookRunner
from codebutler.schedule.scheduler import Publish, Scheduler
from codebutler.supervisor.workers import Workers


class Outbound(Struct, frozen=True, kw_only=True):
    """Sends what workers post to the chats. ``publish`` posts what the schedule and our own commands say, once."""

    chats: Chats
    publish: Publish
    services: ParentServices
    supervisor: Workers
    cards: Cards


class Inbound(Struct, frozen=True, kw_only=True):
    """The way in: from the chats, hooks and the clock to the workers."""

    intake: Intake
    speaker: Speaker
    scheduler: Scheduler
    jobs: ScheduleCommands
    hooks: HookRunner
    dispatcher: Dispatcher
    moves: RepoMoves


class OpenedChat(Struct, frozen=True, kw_only=True):
    """A chat before it is connected, and its own notes."""

    platform: Platform
    integration: Integration
    notes: Notes

    @classmethod
    def of(cls, platform: Platform, parts: Parts) -> OpenedChat:
        """The chat of a platform; calls nothing yet."""
        journal = parts.journal
        notes = journal if platform.has_plain_notes else OwnNotes(journal, platform.name)
        opening = Opening(
            config=parts.given.config, clock=parts.clock, notes=notes, redact=parts.redactor.redact
        )
        return cls(platform=platform, integration=platform.open(opening), notes=notes)

    def connected(self, parts: Parts, outbound: Outbound, inbound: Inbound) -> ConnectedChat:
        """The chat with its connection, the source of its events."""
        name = self.platform.name
        return self.integration.connect(
            Host(
                sender=outbound.chats.named(name).sender,
                intake=inbound.intake,
                dispatcher=inbound.dispatcher,
                journal=parts.journal,
                notes=self.notes,
                direct=parts.direct,
                clock=parts.clock,
                tasks=parts.tasks,
                interrupted=parts.signals.interrupted,
                listened=partial(parts.repos.listened, name),
                is_starting=lambda: outbound.supervisor.is_starting,
                notice=outbound.services.notice,
                pages=partial(self._pages, parts, outbound),
                registered=parts.repos.channels,
                people=parts.repos.people,
                asking=partial(self._asking, parts, outbound),
            )
        )

    def _asking(self, parts: Parts, outbound: Outbound) -> set[ConversationRef]:
        """Where our open cards are: in a repository's channel, or in a private chat."""
        sender = outbound.chats.named(self.platform.name).sender
        return {
            sender.where(channel, turn.thread)
            for channel, repo in parts.repos.listened(self.platform.name).items()
            for turn in parts.turns.by_repo.get(repo.name, ())
            if turn.asked or turn.card
        }

    def _pages(self, parts: Parts, outbound: Outbound, connection: ChatConnection) -> AppHome:
        """What needs each person of the chat, and the state of everything."""
        chat = outbound.chats.named(self.platform.name)

        def trouble() -> str:
            return connection.status.trouble or chat.sender.trouble

        key = self.platform.section.people_key()
        sources = HomeSources(parts.turns, outbound.cards.of, trouble, key)
        board = chat.sender if chat.chat.capabilities.home else None
        pages = AppHome(
            board, self.notes, sources, parts.clock, parts.redactor.redact, outbound.chats.addresses
        )
        parts.signals.changed.add(pages.changed)
        return pages


class ChatConnections:
    """The connections to all chats; ``run`` until ``stop``. ``allowed`` are all who may talk to us; ``named`` looks up
    names."""

    def __init__(
        self,
        chats: Sequence[ConnectedChat],
        allowed: Callable[[], Collection[PersonRef]],
        named: Callable[[Collection[PersonRef]], None],
        record: Callable[[str, LogTag, str], None],
        tasks: Tasks,
    ) -> None:
        self._chats = chats
        self._allowed = allowed
        self._named = named
        self._record = record
        self._tasks = tasks
        self._stopped = False
        self._ended: dict[ChatName, str] = {}
        self.any_connected = asyncio.Event()

    def __iter__(self) -> Iterator[ConnectedChat]:
        return iter(self._chats)

    @property
    def names(self) -> tuple[ChatName, ...]:
        """The names of the chats, in order."""
        return tuple(each.name for each in self)

    def trouble(self, chat: ConnectedChat) -> str:
        """The problem of a chat's connection; "" while it is fine."""
        return self._ended.get(chat.name) or chat.connection.status.trouble

    async def run(self) -> None:
        """Raises ChatAuthError if every chat refuses its token at the start; with a single chat, what that
        raises."""
        refused = await asyncio.gather(*map(self._live, self._chats))
        for error in refused:
            if error is not None and all(refused):
                raise error

    async def stop(self) -> None:
        """Take no more events; finish those being committed."""
        self._stopped = True
        await asyncio.gather(*(each.connection.stop() for each in self))

    def look_again(self) -> None:
        """The channels have changed, or events may have been missed."""
        for each in self:
            each.connection.look_again()

    def meet(self) -> None:
        """Look up people who may talk to us now, in connected chats. Returns at once."""
        for each in self:
            if each.connection.connected.is_set():
                self._tasks.start(self._meet(each), name=f"meeting people of {each.name}")

    def use_tokens(self, config: Config) -> None:
        """Continue with other tokens. Raises ChatAuthError for one of the wrong kind, and nothing changes."""
        for each in self:
            each.check(config)
        for each in self:
            each.use_tokens(config)

    async def _live(self, each: ConnectedChat) -> ChatAuthError | None:
        """A connection that ended by itself (switched off, token refused) does not stop the others."""
        refused: ChatAuthError | None = None
        why = ""
        async with beside(self._greet(each), name=f"{each.name}'s people"):
            try:
                await each.connection.run()
                why = each.connection.status.trouble
            except ChatAuthError as error:
                refused = error
                why = f"{error}; restart the supervisor afterwards"
            except Exception as error:  # one chat's error must not stop the others
                if len(self._chats) == 1:
                    raise
                why = f"internal error: {error!r}; restart the supervisor"
        if not self._stopped and (refused is None or len(self._chats) > 1):
            self._record("", "ERR", f"no more events from {each.name}: {why}")
            self._ended[each.name] = why
        return refused

    async def _greet(self, each: ConnectedChat) -> None:
        await each.connection.connected.wait()
        self.any_connected.set()
        self._tasks.start(self._meet(each), name=f"meeting people of {each.name}")

    async def _meet(self, each: ConnectedChat) -> None:
        """People's names, and the direct conversations with them."""
        users = sorted(user for user in self._allowed() if chat_of(user) == each.name)
        self._named(users)
        await each.meet(users)

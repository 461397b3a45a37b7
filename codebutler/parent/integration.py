"""Chats in the composition root: what is made for each, and the connections that bring their events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass

from codebutler.chat.chats import ChatConnection, Chats, ServedChat
from codebutler.chat.people import Person
from codebutler.config.channels import ChatName, chat_of
from codebutler.config.schema import Config
from codebutler.domain.errors import ChatAuthError
from codebutler.intake.dispatcher import AuditFirst, HeldBack
from codebutler.intake.intake import Intake
from codebutler.intake.records import Notes, OwnNotes
from codebutler.parent.apphome import AppHome, Cards, HomeSources
from codebutler.parent.parts import Parts
from codebutler.parent.services import ParentServices
from codebutler.platform.tasks import Tasks, beside
from codebutler.protocol.messages import LogTag
from codebutler.schedule.commands import ScheduleCommands
from codebutler.schedule.hooks import HookRunner
from codebutler.schedule.scheduler import Scheduler
from codebutler.supervisor.supervisor import Supervisor


@dataclass(frozen=True, kw_only=True)
class Outbound:
    """The way out: from the workers to the chats."""

    chats: Chats
    services: ParentServices
    supervisor: Supervisor
    cards: Cards


@dataclass(frozen=True, kw_only=True)
class Inbound:
    """The way in: from the chats, hooks and the clock to the workers."""

    intake: Intake
    held: HeldBack
    scheduler: Scheduler
    jobs: ScheduleCommands
    hooks: HookRunner
    audit: AuditFirst


async def _meets_nobody(_users: Collection[str]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedChat:
    """A chat with the connection that brings its events. ``check`` raises ChatAuthError for a token that is absent or
    of the wrong kind; ``use_tokens`` goes on with tokens that were checked. ``work`` is done beside the connection,
    until cancelled; ``meet`` prepares for people who are now allowed to write."""

    name: ChatName
    connection: ChatConnection
    check: Callable[[Config], None]
    use_tokens: Callable[[Config], None]
    work: Callable[[], Coroutine[object, object, None]]
    meet: Callable[[Collection[str]], Awaitable[None]] = _meets_nobody


def own_notes(parts: Parts, name: ChatName) -> Notes:
    """The notes of one chat's parts. Slack's have no suffix: they are older than the other chats."""
    return parts.journal if name == "Slack" else OwnNotes(parts.journal, name)


def app_home(chat: ServedChat, parts: Parts, outbound: Outbound, connection: ChatConnection) -> AppHome:
    """What needs each person of a chat, and how that is."""

    def trouble() -> str:
        return connection.status.trouble or chat.sender.trouble

    sources = HomeSources(parts.turns, outbound.cards.of, trouble, f"{chat.name.lower()}.allowedUsers")
    board, notes = chat.sender if chat.chat.capabilities.home else None, own_notes(parts, chat.name)
    apphome = AppHome(board, notes, sources, parts.clock, parts.cleaned, chat.sender.workspace_url)
    parts.signals.changed.add(apphome.changed)
    return apphome


class Directories:
    """Who people are, whatever their chat; ``by_name`` has each chat's own look-up."""

    def __init__(self, by_name: Mapping[ChatName, Callable[[str], Awaitable[Person]]]) -> None:
        self._by_name = by_name

    async def person(self, user: str) -> Person:
        """Raises ChatError."""
        look_up = self._by_name.get(chat_of(user))
        return await look_up(user) if look_up else Person(id=user, names=())


class ChatConnections:
    """``run`` until ``stop``. ``allowed`` are all who may talk to us; ``named`` looks up how people are called."""

    def __init__(
        self,
        chats: Sequence[ConnectedChat],
        allowed: Callable[[], Collection[str]],
        named: Callable[[Collection[str]], None],
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
        """Of the chats, in order."""
        return tuple(each.name for each in self)

    def trouble(self, chat: ConnectedChat) -> str:
        """What is wrong with a chat's connection; "" while all is well."""
        return self._ended.get(chat.name) or chat.connection.status.trouble

    async def run(self) -> None:
        """Raises ChatAuthError if every chat refuses its token at the start. With one chat alone, what it raises."""
        refused = await asyncio.gather(*map(self._live, self._chats))
        for error in refused:
            if error is not None and all(refused):
                raise error

    async def stop(self) -> None:
        """Take no more events; those being committed are finished."""
        self._stopped = True
        await asyncio.gather(*(each.connection.stop() for each in self))

    def look_again(self) -> None:
        """There are other channels now, or something may have been missed."""
        for each in self:
            each.connection.look_again()

    def meet(self) -> None:
        """Get to know whoever may talk to us by now, where we are connected. Returns at once."""
        for each in self:
            if each.connection.connected.is_set():
                self._tasks.start(self._meet(each), name=f"meeting people of {each.name}")

    def use_tokens(self, config: Config) -> None:
        """Go on with other tokens. Raises ChatAuthError for one of the wrong kind: then all stays as it was."""
        for each in self:
            each.check(config)
        for each in self:
            each.use_tokens(config)

    async def _live(self, each: ConnectedChat) -> ChatAuthError | None:
        """A connection that ended by itself (switched off, token refused) leaves the rest at work."""
        refused: ChatAuthError | None = None
        why = ""
        async with beside(self._greet(each), name=f"{each.name}'s people"):
            try:
                await each.connection.run()
                why = each.connection.status.trouble
            except ChatAuthError as error:
                refused = error
                why = f"{error}; restart the supervisor afterwards"
            except Exception as error:
                if len(self._chats) == 1:
                    raise
                why = f"an error of ours: {error!r}; restart the supervisor"
        if not self._stopped and (refused is None or len(self._chats) > 1):
            self._record("", "ERR", f"no more events from {each.name}: {why}")
            self._ended[each.name] = why
        return refused

    async def _greet(self, each: ConnectedChat) -> None:
        await each.connection.connected.wait()
        self.any_connected.set()
        self._tasks.start(self._meet(each), name=f"meeting people of {each.name}")

    async def _meet(self, each: ConnectedChat) -> None:
        """Their names, and the direct conversations with them."""
        users = sorted(user for user in self._allowed() if chat_of(user) == each.name)
        self._named(users)
        await each.meet(users)

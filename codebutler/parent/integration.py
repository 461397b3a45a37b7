"""What the composition root asks of a chat. Its way out is made first, and what brings its events last."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from codebutler.chat.chats import ChatConnection, Chats, ServedChat
from codebutler.chat.people import Person
from codebutler.chat.port import ChatPort
from codebutler.config.channels import ChatName, chat_of
from codebutler.config.schema import Config
from codebutler.intake.audit import AuditFirst
from codebutler.intake.held import HeldBack
from codebutler.intake.intake import Intake
from codebutler.intake.notes import Notes, OwnNotes
from codebutler.parent.apphome.publisher import AppHome, HomeSources
from codebutler.parent.cards import Cards
from codebutler.parent.parts import Parts
from codebutler.parent.services import ParentServices
from codebutler.schedule.calls import HookDesk
from codebutler.schedule.desk import ScheduleDesk
from codebutler.schedule.scheduler import Scheduler
from codebutler.supervisor.supervisor import Supervisor


@dataclass(frozen=True, kw_only=True)
class Out:
    """The way out: from the workers to the chats."""

    chats: Chats
    services: ParentServices
    supervisor: Supervisor
    cards: Cards


@dataclass(frozen=True, kw_only=True)
class In:
    """The way in: from the chats, hooks and the clock to the workers."""

    intake: Intake
    held: HeldBack
    scheduler: Scheduler
    jobs: ScheduleDesk
    hooks: HookDesk
    audit: AuditFirst


class Joined(Protocol):
    """A chat that is connected."""

    @property
    def name(self) -> ChatName:
        """Which."""

    @property
    def connection(self) -> ChatConnection:
        """Brings its events."""

    async def work(self) -> None:
        """What is done for the chat beside the connection; until cancelled."""

    async def meet(self, users: Collection[str]) -> None:
        """Get ready for these people, all of this chat."""

    def check(self, config: Config) -> None:
        """Raises ChatAuthError for a token that is absent, or of the wrong kind."""

    def use_tokens(self, config: Config) -> None:
        """Go on with tokens that were checked."""


def own_notes(parts: Parts, name: ChatName) -> Notes:
    """What a chat's own parts remember. Slack's notes have the names that they have always had."""
    return parts.journal if name == "Slack" else OwnNotes(parts.journal, name)


def app_home(chat: ServedChat, parts: Parts, out: Out, connection: ChatConnection) -> AppHome:
    """What needs each person of a chat, and how that is."""

    def trouble() -> str:
        return connection.status.trouble or chat.sender.trouble

    sources = HomeSources(parts.turns, out.cards.of, trouble, f"{chat.name.lower()}.allowedUsers")
    board, notes = chat.sender if chat.chat.capabilities.home else None, own_notes(parts, chat.name)
    apphome = AppHome(board, notes, sources, parts.clock, parts.cleaned, chat.sender.workspace_url)
    parts.signals.changed.add(apphome.changed)
    return apphome


class Directories:
    """Who people are, whatever their chat."""

    def __init__(self, integrations: Sequence[Integration]) -> None:
        self._by_name = {each.name: each for each in integrations}

    async def person(self, user: str) -> Person:
        """Raises ChatError."""
        name = chat_of(user)
        return await self._by_name[name].person(user) if name in self._by_name else Person(id=user, names=())


class Integration(Protocol):
    """A chat, as far as it can be made before what it brings has anywhere to go. An async context manager."""

    def __init__(self, parts: Parts) -> None: ...

    @staticmethod
    def check(config: Config) -> None:
        """Raises ChatAuthError for a token that is absent, or of the wrong kind."""

    @property
    def name(self) -> ChatName:
        """Which."""

    @property
    def chat(self) -> ChatPort:
        """The chat itself."""

    async def __aenter__(self) -> Self:
        """Open what calls need."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""

    async def person(self, user: str) -> Person:
        """Who has that ID. Raises ChatError."""

    def join(self, parts: Parts, out: Out, way_in: In) -> Joined:
        """Put together all that brings events and hears of them."""

"""Our side of a Telegram chat in a test: the adapter, an intake with a journal, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from codebutler.chat.absence_notice import AbsenceNotice, ToldChannels
from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.chat import TelegramChat
from codebutler.chat.telegram.connection import Notice, TelegramConnection
from codebutler.chat.telegram.places import UnknownGroup, UnknownGroups
from codebutler.chat.telegram.updates import Membership
from codebutler.config.chats import SlackSection
from codebutler.config.permission import Decision
from codebutler.config.schema import Config
from codebutler.domain.clock import Clock, SystemClock
from codebutler.domain.model import ButtonClicked, Event, MessageEdited, MessagePosted, Request
from codebutler.domain.refs import ConversationRef
from codebutler.intake.intake import Intake, Outcome
from codebutler.intake.journal import Journal
from codebutler.intake.records import Entry
from codebutler.intake.repos import Repo
from codebutler.platform.tasks import Tasks
from tests.clock import ManualClock
from tests.telegram.server import ANA, FORUM, GROUP, BotServer

PATIENCE_S = 20.0


class Room:
    """One life: opened and closed, the journal and the server outlive it."""

    def __init__(self, server: BotServer, path: Path, clock: Clock | None = None) -> None:
        self.server = server
        self.clock = clock or SystemClock()
        self.journal = Journal.open(path, self.clock)
        self.routed: list[Entry] = []
        self.refusals: list[str] = []
        self.notices: list[Notice] = []
        self.troubles: list[str] = []
        self.full: list[Event] = []
        self.chat = TelegramChat(
            BotApi(server.token, server.url, timeout_s=5), self.journal, clock=self.clock
        )
        repo = Repo("shop", Config(slack=SlackSection(allowed_users=(f"tg:{ANA}",))))
        served = {ConversationRef(f"tg:{chat}"): repo for chat in (ANA, GROUP, FORUM, -4000)}
        self.intake = Intake(
            repos=served,
            journal=self.journal,
            dispatch=self.routed.append,
            refusals=self,
            clock=self.clock,
        )
        self.sender = Sender(self.chat, self.clock, Editor(str), notes=self.journal)
        self.tasks = Tasks(lambda name, error: self.troubles.append(f"{name}: {error!r}"))
        self.groups = UnknownGroups(
            self.chat, self.sender, served.__contains__, {f"tg:{ANA}"}.__contains__, self.tasks
        )
        self.connection = TelegramConnection(
            self.chat,
            self.sender,
            self.intake,
            self._heed,
            Random(1),
            AbsenceNotice(
                self.sender, self.journal, self.clock, ToldChannels(tuple), lambda: False, self.journal
            ),
        )
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.chat.__aenter__()
        await self.sender.__aenter__()
        self._task = asyncio.create_task(self.connection.run(), name="telegram")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.connection.stop()
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.tasks.close(0)
        await self.sender.__aexit__(None, None, None)
        await self.chat.__aexit__(None, None, None)
        await self.journal.close()

    def _heed(self, notice: Notice) -> None:
        self.notices.append(notice)
        if isinstance(notice, Membership):
            self.groups.on_membership(notice)
        elif isinstance(notice, UnknownGroup):
            self.groups.on_message(notice.event)

    @property
    def messages(self) -> list[MessagePosted]:
        return [entry.event for entry in self.routed if isinstance(entry.event, MessagePosted)]

    @property
    def edits(self) -> list[MessageEdited]:
        return [entry.event for entry in self.routed if isinstance(entry.event, MessageEdited)]

    @property
    def clicks(self) -> list[ButtonClicked]:
        return [entry.event for entry in self.routed if isinstance(entry.event, ButtonClicked)]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for it, and not for ever."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0.01)

    async def in_time(self, condition: Callable[[], object]) -> None:
        """Wait for it while the room's clock goes on, a second at each look."""
        assert isinstance(self.clock, ManualClock)
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self.clock.advance(1)
                await asyncio.sleep(0.01)

    async def confirmed(self) -> None:
        """Wait until nothing waits on the server."""
        await self.until(lambda: not self.server.telegram.waiting() and self.server.polls.is_waiting)

    def refused(self, event: Event, request: Request, decision: Decision, *, tell: bool) -> None:
        self.refusals.append(event.user)

    def commanded(self, event: Event, request: Request) -> None:
        pass

    def counted(self, outcome: Outcome, seconds: float) -> None:
        pass

    def no_space(self, event: Event) -> None:
        self.full.append(event)

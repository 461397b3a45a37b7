"""Slack for the supervisor: its API, App Home, forms, direct messages, and the connection: our identity, the socket
that brings events to the intake, and catch-up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from random import Random
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from codebutler.chat.absence_notice import AbsenceNotice, ToldChannels
from codebutler.chat.delivery.access import Channels
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.people import Person
from codebutler.chat.platform import ConnectedChat, Host, Opening, PersonalPages
from codebutler.chat.port import ChannelMoved, identified
from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.catchup import CatchUp, Shelf
from codebutler.chat.slack.forms import FormAsked, PressedInVain, Reasons
from codebutler.chat.slack.http import check_app_token, check_bot_token
from codebutler.chat.slack.link import EventHandler
from codebutler.chat.slack.payloads import HomeOpened, Notice
from codebutler.chat.slack.presence import EchoProbe, Presence
from codebutler.chat.slack.socket import SocketModeClient, SocketStatus
from codebutler.config.chats import SlackSection
from codebutler.config.schema import Config
from codebutler.domain.clock import Clock
from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatRateLimitedError,
    ChatUnreachableError,
    CodeButlerError,
    StoreError,
)
from codebutler.domain.message import said
from codebutler.domain.model import Post
from codebutler.domain.refs import ConversationRef, PersonRef
from codebutler.intake.direct import DirectThreads
from codebutler.intake.intake import Intake
from codebutler.intake.journal import Journal
from codebutler.platform.tasks import Observers, Tasks

ATTEMPTS = 3
RETRY_S = 30.0
NOT_SERVED = "⚠️ This repository is no longer served: nothing was decided."

log = logging.getLogger("codebutler.chat.slack.connection")


class Care(Struct, frozen=True):
    """The parts that make sure that no event is missed: catch-up, the test for a dead connection, and the
    absence notice."""

    catch_up: CatchUp
    heartbeat: EchoProbe
    absence_notice: AbsenceNotice
    on_notice: Callable[[Notice], None]


class SlackConnection:
    """Receives a workspace's events. ``run`` until ``stop``; it also ends by itself if a retry is pointless, see
    ``status``.

    ``connected`` is set once the first connection is ready.
    """

    def __init__(
        self,
        api: SlackApi,
        app_token: str,
        intake: Intake,
        care: Care,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._api = api
        self._app_token = app_token
        self._intake = intake
        self._catch_up = care.catch_up
        self._heartbeat = care.heartbeat
        self._absence_notice = care.absence_notice
        self._on_notice = care.on_notice
        self._clock = clock
        self._rng = rng
        self._trouble = ""
        self._missing = False
        self._shared = False
        self._client: SocketModeClient | None = None
        self.connected = asyncio.Event()

    @property
    def status(self) -> SocketStatus:
        """The socket's current state."""
        if self._client is None:
            return SocketStatus(state="connecting", trouble=self._trouble)
        return replace(self._client.status, catching_up=self._catch_up.is_busy)

    async def run(self) -> None:
        """Find out our identity, then receive. Raises ChatAuthError if Slack refuses a token at the start."""
        me = await identified(self._api.identity, self._clock, self._rng, self._troubled)
        events = EventHandler(self._intake, me, self._on_notice)
        client = self._client = SocketModeClient(
            self._open, events.handle, self._clock, self._rng, self._note
        )
        self._lose()
        has_missed = partial(self._catch_up.has_missed, me=me)
        presence = Presence(
            self._catch_up.channels,
            lambda: client.status,
            client.rebuild,
            has_missed,
            self._heartbeat.beat,
            self._clock,
        )
        helpers = Tasks(lambda name, error: log.error("the %s failed: %r", name, error))
        helpers.start(self._catch_up.run(me), name="catch-up")
        helpers.start(presence.run(), name="presence")
        helpers.start(self._absence_notice.run(), name="absence notice")
        try:
            await client.run()
        finally:
            await helpers.close(0)
        if client.status.state == "auth_failed" and client.status.last_event_age_s is None:
            raise ChatAuthError(client.status.trouble)

    def look_again(self) -> None:
        """The channels have changed: keep track of the new ones, too."""
        self._catch_up.lost()
        if not self._missing:
            self._catch_up.back()

    def use_token(self, app_token: str) -> None:
        """Use another app-level token from now on."""
        self._app_token = app_token

    async def stop(self) -> None:
        """Take no more events; those being committed are finished and acknowledged."""
        if self._client is not None:
            await self._client.stop()

    async def _open(self) -> str:
        return await self._api.open_connection(self._app_token)

    def _troubled(self, error: CodeButlerError) -> None:
        if str(error) != self._trouble:
            log.warning("no answer from Slack: %s; trying again", error)
        self._trouble = str(error)

    def _note(self, status: SocketStatus) -> None:
        if status.state == "connected" and not self._missing and (status.trouble or self._shared):
            # Another process receives some of the events, or did until now: history shows which.
            self._shared = bool(status.trouble)
            self.look_again()
            return
        log.info("slack %s", status.state.replace("_", " "))
        if status.state == "connected":
            self.connected.set()
            if self._missing:
                self._missing = False
                self._catch_up.back()
                self._absence_notice.back()
        elif status.trouble:
            # Without trouble it is a planned change, during which the old connection keeps working.
            self._lose()

    def _lose(self) -> None:
        if not self._missing:
            self._missing = True
            self._catch_up.lost()
            self._absence_notice.lost()


class DirectConversations:
    """Opens our conversation with every user, so that one started while nothing runs is caught up like a
    channel. (conversations.open notifies nobody.) ``clock`` tells the chat's time."""

    def __init__(
        self,
        open_direct: Callable[[PersonRef], Awaitable[ConversationRef]],
        threads: DirectThreads,
        journal: Journal,
        clock: Clock,
    ) -> None:
        self._open_direct = open_direct
        self._threads = threads
        self._journal = journal
        self._clock = clock

    async def meet(self, users: Collection[PersonRef]) -> None:
        """Opens conversations with new users. The rest follow with their first message, or next time."""
        known = self._threads.people
        for user in users:
            if user not in known:
                await self._meet(user)

    async def _meet(self, user: PersonRef) -> None:
        for _ in range(ATTEMPTS):
            wait_s = RETRY_S
            try:
                channel = await self._open_direct(user)
                await self._journal.begin_channel(channel, self._clock.now())  # even if we miss events
                await self._threads.meet(user, channel)
                return
            except ChatRateLimitedError as error:
                wait_s = error.retry_after_s
            except ChatUnreachableError:
                log.debug("cannot reach the chat: will open the direct message with %s later", user)
            except (ChatError, StoreError) as error:
                log.info("no direct message from %s yet: %s", user, error)
                return
            await self._clock.sleep(wait_s)


class UnservedPresses:
    """Tells a person, and nobody else, that their button no longer works. ``at_home`` shows it in App Home."""

    def __init__(self, at_home: Callable[[PersonRef], None], sender: Sender, tasks: Tasks) -> None:
        self._at_home = at_home
        self._sender = sender
        self._tasks = tasks

    def pressed(self, press: PressedInVain) -> None:
        """Nobody took the press. Returns at once."""
        if press.at_home:
            self._at_home(press.user)
        else:
            self._tasks.start(self._whisper(press), name=f"a word to {press.user}")

    async def _whisper(self, press: PressedInVain) -> None:
        post = Post(message=said(NOT_SERVED), thread=press.thread, only_for=press.user)
        try:
            await self._sender.submit(press.channel, uuid4().hex, post)
        except ChatError as error:
            log.info("cannot tell %s that their click had no effect: %s", press.user, error)


class SlackIntegration:
    """Slack before it is connected; ``chat`` is an async context manager."""

    def __init__(self, given: Opening) -> None:
        slack = given.config.slack
        self._app_token = slack.app_token
        self.chat = SlackApi(slack.bot_token, slack.api_base_url, clock=given.clock, redact=given.redact)

    @staticmethod
    def check(config: Config) -> None:
        """Raises ChatAuthError for a missing token, or one of the wrong kind."""
        check_bot_token(config.slack.bot_token)
        check_app_token(config.slack.app_token)

    async def person(self, user: PersonRef) -> Person:
        """Who has that ID. Raises ChatError."""
        return await self.chat.person(user)

    def connect(self, host: Host) -> ConnectedChat:
        """Build everything that brings events and handles them."""
        can, notices = self.chat.capabilities, Observers[Notice]()
        connection = self._connection(host, notices)
        pages = host.pages(connection)
        unserved = UnservedPresses(pages.not_served, host.sender, host.tasks)
        reasons = Reasons(can.forms, host.intake, host.notice, host.tasks, unserved.pressed)
        notices.add(partial(_heed, pages, unserved, reasons, host.sender.channels))
        conversations = DirectConversations(self.chat.open_direct, host.direct, host.journal, self.chat.clock)

        def use_tokens(config: Config) -> None:
            self.chat.use_token(config.slack.bot_token.strip())
            connection.use_token(config.slack.app_token.strip())

        return ConnectedChat(
            section=SlackSection,
            connection=connection,
            check=self.check,
            use_tokens=use_tokens,
            work=pages.run,
            meet=conversations.meet,
        )

    def _connection(self, host: Host, notices: Observers[Notice]) -> SlackConnection:
        """Our connection to the workspace, with the parts that make sure that no event is missed."""
        sender, clock, rng = host.sender, host.clock, Random()  # noqa: S311 - back-off
        shelf = Shelf(intake=host.intake, journal=host.journal, dispatcher=host.dispatcher)
        catch_up = CatchUp(sender.background, shelf, self.chat.clock, rng, host.listened)
        heartbeat = EchoProbe(sender, host.journal, catch_up.channels, clock)
        absence_notice = AbsenceNotice(
            sender,
            host.journal,
            clock,
            ToldChannels(catch_up.channels),
            lambda: catch_up.is_busy or host.is_starting(),
            host.notes,
        )
        host.interrupted.add(absence_notice.interrupted)
        care = Care(catch_up, heartbeat, absence_notice, notices.tell)
        return SlackConnection(self.chat, self._app_token, host.intake, care, clock, rng)


def _heed(
    pages: PersonalPages, unserved: UnservedPresses, reasons: Reasons, channels: Channels, notice: Notice
) -> None:
    match notice:
        case HomeOpened(user=user):
            pages.opened(user)
        case PressedInVain():
            unserved.pressed(notice)
        case FormAsked():
            reasons.asked(notice)
        case ChannelMoved():
            channels.moved(notice)

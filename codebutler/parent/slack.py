"""Slack in the composition root: its API, the socket that brings its events, App Home, forms, direct messages."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from random import Random
from uuid import uuid4

from codebutler.chat.absence_notice import AbsenceNotice
from codebutler.chat.delivery.access import Channels
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.people import Person
from codebutler.chat.port import ChannelMoved
from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.catchup import CatchUp, Shelf
from codebutler.chat.slack.connection import Care, SlackConnection
from codebutler.chat.slack.forms import FormAsked, PressedInVain, Reasons
from codebutler.chat.slack.http import check_app_token, check_bot_token
from codebutler.chat.slack.payloads import HomeOpened, Notice
from codebutler.chat.slack.presence import EchoProbe
from codebutler.config.channels import ChatName
from codebutler.config.schema import Config
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, ChatRateLimitedError, ChatUnreachableError, StoreError
from codebutler.domain.message import said
from codebutler.domain.model import Post
from codebutler.intake.direct import DirectThreads
from codebutler.intake.journal import Journal
from codebutler.parent.apphome import AppHome
from codebutler.parent.integration import ConnectedChat, Inbound, Outbound, app_home
from codebutler.parent.parts import Parts
from codebutler.platform.tasks import Observers, Tasks

ATTEMPTS = 3
RETRY_S = 30.0

log = logging.getLogger("codebutler.parent.slack")

NOT_SERVED = "⚠️ This repository is no longer served: nothing was decided."


class DirectConversations:
    """Opens our conversation with everybody who may use something, so that one begun while nothing runs is caught up
    like a channel. (Nobody notices conversations.open.) ``clock`` tells the chat's time."""

    def __init__(
        self,
        open_direct: Callable[[str], Awaitable[str]],
        threads: DirectThreads,
        journal: Journal,
        clock: Clock,
    ) -> None:
        self._open_direct = open_direct
        self._threads = threads
        self._journal = journal
        self._clock = clock

    async def meet(self, users: Collection[str]) -> None:
        """Whoever is new among them. Who cannot be met now is met by their first message, or next time."""
        known = self._threads.people
        for user in users:
            if user not in known:
                await self._meet(user)

    async def _meet(self, user: str) -> None:
        for _ in range(ATTEMPTS):
            wait_s = RETRY_S
            try:
                channel = await self._open_direct(user)
                # What is written from now on is ours, also what we do not hear of.
                await self._journal.open_gaps((channel,), self._clock.now())
                await self._journal.close_gap(channel)
                await self._threads.meet(user, channel)
                return
            except ChatRateLimitedError as error:
                wait_s = error.retry_after_s
            except ChatUnreachableError:
                log.debug("the chat is not reached: %s is met later", user)
            except (ChatError, StoreError) as error:
                log.info("no direct message from %s yet: %s", user, error)
                return
            await self._clock.sleep(wait_s)


class UnservedPresses:
    """Tells somebody, and nobody else, that their button stands for nothing any more. ``at_home`` shows it to a user in
    App Home."""

    def __init__(self, at_home: Callable[[str], None], sender: Sender, tasks: Tasks) -> None:
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
        post = Post(message=said(NOT_SERVED), thread_ts=press.thread_ts, only_for=press.user)
        try:
            await self._sender.submit(press.channel, uuid4().hex, post)
        except ChatError as error:
            log.info("%s could not be told that their press was for nothing: %s", press.user, error)


class SlackIntegration:
    """Slack before it is connected; ``chat`` is to be entered."""

    name: ChatName = "Slack"

    def __init__(self, parts: Parts) -> None:
        slack = parts.given.config.slack
        self._app_token = slack.app_token
        self.chat = SlackApi(
            slack.bot_token, slack.api_base_url, clock=parts.clock, redact=parts.redactor.redact
        )

    @staticmethod
    def check(config: Config) -> None:
        """Raises ChatAuthError for a token that is absent, or of the wrong kind."""
        check_bot_token(config.slack.bot_token)
        check_app_token(config.slack.app_token)

    async def person(self, user: str) -> Person:
        """Who has that ID. Raises ChatError."""
        return await self.chat.person(user)

    def connect(self, parts: Parts, outbound: Outbound, inbound: Inbound) -> ConnectedChat:
        """Put together all that brings events and hears of them."""
        sender, can = outbound.chats.named(self.name).sender, self.chat.capabilities
        notices = Observers[Notice]()
        connection = self._connection(parts, outbound, inbound, notices)
        home = app_home(outbound.chats.named(self.name), parts, outbound, connection)
        unserved = UnservedPresses(home.not_served, sender, parts.tasks)
        reasons = Reasons(can.forms, inbound.intake, outbound.services.notice, parts.tasks, unserved.pressed)
        notices.add(partial(_heed, home, unserved, reasons, sender.channels))
        conversations = DirectConversations(
            self.chat.open_direct, parts.direct, parts.journal, self.chat.clock
        )

        def use_tokens(config: Config) -> None:
            self.chat.use_token(config.slack.bot_token.strip())
            connection.use_token(config.slack.app_token.strip())

        return ConnectedChat(
            name=self.name,
            connection=connection,
            check=self.check,
            use_tokens=use_tokens,
            work=home.run,
            meet=conversations.meet,
        )

    def _connection(
        self, parts: Parts, outbound: Outbound, inbound: Inbound, notices: Observers[Notice]
    ) -> SlackConnection:
        """Our presence in the workspace, with what sees to it that no event is missed."""
        sender, clock, rng = outbound.chats.named(self.name).sender, parts.clock, Random()  # noqa: S311 - back-off
        shelf = Shelf(intake=inbound.intake, journal=parts.journal, held=inbound.held)
        listened = partial(parts.repos.listened, self.name)
        catch_up = CatchUp(sender.background, shelf, self.chat.clock, rng, listened)
        heartbeat = EchoProbe(sender, parts.journal, catch_up.channels, clock)
        absence_notice = AbsenceNotice(
            sender,
            parts.journal,
            clock,
            catch_up.channels,
            lambda: catch_up.is_busy or outbound.supervisor.is_starting,
        )
        parts.signals.interrupted.add(absence_notice.interrupted)
        care = Care(catch_up, heartbeat, absence_notice, notices.tell)
        return SlackConnection(self.chat, self._app_token, inbound.intake, care, clock, rng)


def _heed(
    home: AppHome, unserved: UnservedPresses, reasons: Reasons, channels: Channels, notice: Notice
) -> None:
    match notice:
        case HomeOpened(user=user):
            home.opened(user)
        case PressedInVain():
            unserved.pressed(notice)
        case FormAsked():
            reasons.asked(notice)
        case ChannelMoved():
            channels.moved(notice)

"""Slack, put together: the way to it, the socket that brings its events, App Home and forms."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from random import Random
from types import TracebackType
from typing import Self

from codebutler.chat.absence_notice import AbsenceNotice
from codebutler.chat.delivery.access import Channels
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
from codebutler.parent.apphome.publisher import AppHome
from codebutler.parent.apphome.vain import Vain
from codebutler.parent.direct.acquaintance import Acquaintance
from codebutler.parent.integration import In, Out, app_home
from codebutler.parent.parts import Parts
from codebutler.platform.observers import Observers


class SlackIntegration:
    """An Integration."""

    name: ChatName = "Slack"

    def __init__(self, parts: Parts) -> None:
        slack = parts.given.config.slack
        self._app_token = slack.app_token
        self.chat = SlackApi(
            slack.bot_token, slack.api_base_url, clock=parts.clock, redact=parts.redactor.redact
        )

    @staticmethod
    def check(config: Config) -> None:
        """See Integration."""
        check_bot_token(config.slack.bot_token)
        check_app_token(config.slack.app_token)

    async def __aenter__(self) -> Self:
        await self.chat.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.chat.__aexit__(kind, error, trace)

    async def person(self, user: str) -> Person:
        """See Integration."""
        return await self.chat.person(user)

    def join(self, parts: Parts, out: Out, way_in: In) -> SlackJoined:
        """See Integration."""
        sender, can = out.chats.named(self.name).sender, self.chat.capabilities
        notices = Observers[Notice]()
        connection = self._connection(parts, out, way_in, notices)
        apphome = app_home(out.chats.named(self.name), parts, out, connection)
        vain = Vain(apphome.vain, sender, parts.tasks)
        reasons = Reasons(can.forms, way_in.intake, out.services.notice, parts.tasks, vain.pressed)
        notices.add(partial(_heed, apphome, vain, reasons, sender.channels))
        acquaintance = Acquaintance(self.chat, parts.book, parts.journal, self.chat.clock)
        return SlackJoined(self.chat, connection, apphome, acquaintance)

    def _connection(self, parts: Parts, out: Out, way_in: In, notices: Observers[Notice]) -> SlackConnection:
        """Our presence in the workspace, with what sees to it that no event is missed."""
        sender, clock, rng = out.chats.named(self.name).sender, parts.clock, Random()  # noqa: S311 - back-off
        shelf = Shelf(intake=way_in.intake, journal=parts.journal, held=way_in.held)
        listened = partial(parts.repos.listened, self.name)
        catch_up = CatchUp(sender.background, shelf, self.chat.clock, rng, listened)
        heartbeat = EchoProbe(sender, parts.journal, catch_up.channels, clock)
        absence_notice = AbsenceNotice(
            sender,
            parts.journal,
            clock,
            catch_up.channels,
            lambda: catch_up.is_busy or out.supervisor.is_starting,
        )
        parts.signals.interrupted.add(absence_notice.interrupted)
        care = Care(catch_up, heartbeat, absence_notice, notices.tell)
        return SlackConnection(self.chat, self._app_token, way_in.intake, care, clock, rng)


@dataclass(frozen=True, slots=True)
class SlackJoined:
    """A Joined."""

    api: SlackApi
    connection: SlackConnection
    apphome: AppHome
    acquaintance: Acquaintance

    @property
    def name(self) -> ChatName:
        """See Joined."""
        return "Slack"

    async def work(self) -> None:
        """See Joined."""
        await self.apphome.run()

    async def meet(self, users: Collection[str]) -> None:
        """See Joined."""
        await self.acquaintance.meet(users)

    def check(self, config: Config) -> None:
        """See Joined."""
        SlackIntegration.check(config)

    def use_tokens(self, config: Config) -> None:
        """See Joined."""
        self.api.use_token(config.slack.bot_token.strip())
        self.connection.use_token(config.slack.app_token.strip())


def _heed(apphome: AppHome, vain: Vain, reasons: Reasons, channels: Channels, notice: Notice) -> None:
    match notice:
        case HomeOpened(user=user):
            apphome.opened(user)
        case PressedInVain():
            vain.pressed(notice)
        case FormAsked():
            reasons.asked(notice)
        case ChannelMoved():
            channels.moved(notice)

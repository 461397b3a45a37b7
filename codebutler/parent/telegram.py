"""Telegram, put together: the way to it, and the polls that bring its events."""

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
from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.chat import TelegramChat
from codebutler.chat.telegram.connection import Notice, TelegramConnection
from codebutler.chat.telegram.rules import check_token, number_of
from codebutler.chat.telegram.updates import InboxOpened, StartCommand
from codebutler.config.channels import ChatName
from codebutler.config.schema import Config
from codebutler.parent.apphome.publisher import AppHome
from codebutler.parent.integration import In, Out, app_home, own_notes
from codebutler.parent.parts import Parts
from codebutler.platform.observers import Observers


class TelegramIntegration:
    """An Integration."""

    name: ChatName = "Telegram"

    def __init__(self, parts: Parts) -> None:
        telegram = parts.given.config.telegram
        self.chat = TelegramChat(
            BotApi(telegram.bot_token, telegram.api_base_url),
            own_notes(parts, self.name),
            clock=parts.clock,
            redact=parts.redactor.redact,
        )

    @staticmethod
    def check(config: Config) -> None:
        """See Integration."""
        check_token(config.telegram.bot_token)

    async def __aenter__(self) -> Self:
        await self.chat.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.chat.__aexit__(kind, error, trace)

    async def person(self, user: str) -> Person:
        """See Integration. Telegram knows those who have written to the bot."""
        found = await self.chat.api.call("getChat", chat_id=number_of(user))
        name = " ".join(str(found[part]) for part in ("first_name", "last_name") if found.get(part))
        return Person(id=user, names=(name,) if name else ())

    def join(self, parts: Parts, out: Out, way_in: In) -> TelegramJoined:
        """See Integration."""
        sender, rng = out.chats.named(self.name).sender, Random()  # noqa: S311 - back-off
        absence_notice = AbsenceNotice(
            sender,
            parts.journal,
            parts.clock,
            lambda: tuple(parts.repos.listened(self.name)),
            lambda: out.supervisor.is_starting,
            own_notes(parts, self.name),
        )
        parts.signals.interrupted.add(absence_notice.interrupted)
        notices = Observers[Notice]()
        connection = TelegramConnection(self.chat, sender, way_in.intake, notices.tell, rng, absence_notice)
        apphome = app_home(out.chats.named(self.name), parts, out, connection)
        notices.add(partial(_heed, apphome, sender.channels))
        return TelegramJoined(connection, apphome)


@dataclass(frozen=True, slots=True)
class TelegramJoined:
    """A Joined."""

    connection: TelegramConnection
    apphome: AppHome

    @property
    def name(self) -> ChatName:
        """See Joined."""
        return "Telegram"

    async def work(self) -> None:
        """See Joined."""
        await self.apphome.run()

    async def meet(self, users: Collection[str]) -> None:
        """See Joined. Whoever is allowed writes first: Telegram lets no bot begin."""

    def check(self, config: Config) -> None:
        """See Joined."""
        TelegramIntegration.check(config)

    def use_tokens(self, config: Config) -> None:
        """See Joined."""
        self.connection.use_token(config.telegram.bot_token)


def _heed(apphome: AppHome, channels: Channels, notice: Notice) -> None:
    match notice:
        case InboxOpened(user=user):
            apphome.opened(user)
        case ChannelMoved():
            channels.moved(notice)
        case StartCommand():
            pass  # a code is what `codebutler setup` waits for

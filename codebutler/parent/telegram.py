"""Telegram in the composition root: its API, the polls that bring its events, the home."""

from __future__ import annotations

from functools import partial
from random import Random

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
from codebutler.parent.apphome import AppHome
from codebutler.parent.integration import ConnectedChat, Inbound, Outbound, app_home, own_notes
from codebutler.parent.parts import Parts
from codebutler.platform.tasks import Observers


class TelegramIntegration:
    """Telegram before it is connected; ``chat`` is to be entered."""

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
        """Raises ChatAuthError for a token that is absent, or of the wrong kind."""
        check_token(config.telegram.bot_token)

    async def person(self, user: str) -> Person:
        """Who has that ID, of those who have written to the bot. Raises ChatError."""
        found = await self.chat.api.call("getChat", chat_id=number_of(user))
        name = " ".join(str(found[part]) for part in ("first_name", "last_name") if found.get(part))
        return Person(id=user, names=(name,) if name else ())

    def connect(self, parts: Parts, outbound: Outbound, inbound: Inbound) -> ConnectedChat:
        """Put together all that brings events and hears of them. Nobody is met: Telegram lets no bot begin."""
        sender, rng = outbound.chats.named(self.name).sender, Random()  # noqa: S311 - back-off
        absence_notice = AbsenceNotice(
            sender,
            parts.journal,
            parts.clock,
            lambda: tuple(parts.repos.listened(self.name)),
            lambda: outbound.supervisor.is_starting,
            own_notes(parts, self.name),
        )
        parts.signals.interrupted.add(absence_notice.interrupted)
        notices = Observers[Notice]()
        connection = TelegramConnection(self.chat, sender, inbound.intake, notices.tell, rng, absence_notice)
        home = app_home(outbound.chats.named(self.name), parts, outbound, connection)
        notices.add(partial(_heed, home, sender.channels))
        return ConnectedChat(
            name=self.name,
            connection=connection,
            check=self.check,
            use_tokens=lambda config: connection.use_token(config.telegram.bot_token),
            work=home.run,
        )


def _heed(home: AppHome, channels: Channels, notice: Notice) -> None:
    match notice:
        case InboxOpened(user=user):
            home.opened(user)
        case ChannelMoved():
            channels.moved(notice)
        case StartCommand():
            pass  # a code is what `codebutler setup` waits for

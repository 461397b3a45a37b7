"""Telegram for the supervisor: its API, the polls that bring its events, the home."""

from __future__ import annotations

from functools import partial
from random import Random

from codebutler.chat.absence_notice import AbsenceNotice, ToldChannels
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.people import Person
from codebutler.chat.platform import ConnectedChat, Host, Opening, PersonalPages
from codebutler.chat.port import ChannelMoved
from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.chat import TelegramChat
from codebutler.chat.telegram.connection import Notice, TelegramConnection
from codebutler.chat.telegram.places import UnknownGroup, UnknownGroups
from codebutler.chat.telegram.rules import check_token, number_of
from codebutler.chat.telegram.updates import InboxOpened, Membership, StartCommand
from codebutler.config.chats import TelegramSection
from codebutler.config.schema import Config
from codebutler.domain.refs import PersonRef
from codebutler.platform.tasks import Observers


class TelegramIntegration:
    """Telegram before it is connected; ``chat`` is an async context manager."""

    def __init__(self, given: Opening) -> None:
        telegram = given.config.telegram
        self._allowed = telegram.allowed_ids
        self.chat = TelegramChat(
            BotApi(telegram.bot_token, telegram.api_base_url),
            given.notes,
            clock=given.clock,
            redact=given.redact,
        )

    @staticmethod
    def check(config: Config) -> None:
        """Raises ChatAuthError for a missing token, or one of the wrong kind."""
        check_token(config.telegram.bot_token)

    async def person(self, user: PersonRef) -> Person:
        """Who has that ID, of those who have written to the bot. Raises ChatError."""
        found = await self.chat.api.call("getChat", chat_id=number_of(user))
        name = " ".join(str(found[part]) for part in ("first_name", "last_name") if found.get(part))
        return Person(id=user, names=(name,) if name else ())

    def connect(self, host: Host) -> ConnectedChat:
        """Build everything that brings events and handles them. It opens no conversations: Telegram lets no
        bot start one."""
        sender, rng = host.sender, Random()  # noqa: S311 - back-off
        absence_notice = AbsenceNotice(
            sender,
            host.journal,
            host.clock,
            ToldChannels(lambda: tuple(host.listened()), host.asking),
            host.is_starting,
            host.notes,
        )
        host.interrupted.add(absence_notice.interrupted)
        notices = Observers[Notice]()
        connection = TelegramConnection(self.chat, sender, host.intake, notices.tell, rng, absence_notice)
        pages = host.pages(connection)
        groups = UnknownGroups(
            self.chat,
            sender,
            registered=lambda channel: channel in host.registered(),
            knows=lambda user: user in self._allowed or user in host.people(),
            tasks=host.tasks,
        )
        notices.add(partial(self._heed, pages, groups, sender))

        def use_tokens(config: Config) -> None:
            self._allowed = config.telegram.allowed_ids
            connection.use_token(config.telegram.bot_token)

        return ConnectedChat(
            section=TelegramSection,
            connection=connection,
            check=self.check,
            use_tokens=use_tokens,
            work=pages.run,
        )

    def _heed(self, pages: PersonalPages, groups: UnknownGroups, sender: Sender, notice: Notice) -> None:
        match notice:
            case InboxOpened(user=user):
                pages.opened(user)
            case Membership(chat, is_in):
                channel = self.chat.records.channel(chat)
                sender.channels.moved(ChannelMoved(channel, "back" if is_in else "left"))
                groups.joined(notice)
            case UnknownGroup(event):
                groups.written(event)
            case StartCommand():
                pass  # a code is what `codebutler setup` waits for

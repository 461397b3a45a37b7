"""Telegram as a platform for the supervisor and the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from codebutler.chat.platform import Opening, Option, Platform
from codebutler.config.chats import TelegramSection

if TYPE_CHECKING:
    from codebutler.chat.platform import Integration, PlaceWish, RepoPlace, SetUp
    from codebutler.config.schema import Config
    from codebutler.domain.clock import Clock
    from codebutler.intake.repos import RepoTable
    from codebutler.protocol.messages import Finding


class TelegramPlatform(Platform):
    """Telegram."""

    section = TelegramSection
    setup_options = (
        Option(
            flag="--telegram-token", key="telegram.botToken", help="Token of a Telegram bot, from @BotFather."
        ),
        Option(
            flag="--telegram-user",
            key="telegram.allowedUsers",
            help="Who may use the agents in Telegram: a person's number; may be repeated.",
            many=True,
        ),
        Option(flag="--telegram-api-url", key="telegram.apiBaseUrl", help="Another Bot API server."),
    )
    place_options = (
        Option(
            flag="--telegram",
            key="chat",
            help="Its group in Telegram: a number (-100…) or a public name (@…).",
            metavar="CHAT",
        ),
    )

    needed_place = "--telegram CHAT"

    def check(self, config: Config) -> None:
        """The bot's token."""
        from codebutler.chat.telegram.connection import TelegramIntegration

        TelegramIntegration.check(config)

    def open(self, given: Opening) -> Integration:
        """Its API."""
        from codebutler.chat.telegram.connection import TelegramIntegration

        return TelegramIntegration(given)

    def manifest(self, *, link: bool) -> str:
        """The steps with BotFather."""
        from codebutler.chat.telegram.setup import BOTFATHER, manifest

        return BOTFATHER if link else manifest()

    async def set_up(self, wish: SetUp) -> str:
        """Asks for the bot's token and for people."""
        from codebutler.chat.telegram.setup import set_up

        return await set_up(wish)

    async def place(self, wish: PlaceWish) -> RepoPlace:
        """Finds a group that has the bot in it."""
        from codebutler.chat.telegram.places import place

        return await place(wish)

    def doctor(self, config: Config, table: RepoTable, clock: Clock) -> AsyncIterator[Finding]:  # noqa: ARG002 - Telegram tells no time
        """Checks the token, which process receives the messages, and the repositories' chats."""
        from codebutler.chat.telegram.setup import check_telegram

        return check_telegram(config.telegram, table)


PLATFORM = TelegramPlatform()

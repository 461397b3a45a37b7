"""Slack as a platform for the supervisor and the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from codebutler.chat.platform import Opening, Option, Platform
from codebutler.config.chats import SlackSection
from codebutler.domain.refs import PersonRef

if TYPE_CHECKING:
    from codebutler.chat.people import Person
    from codebutler.chat.platform import Given, Integration, PlaceWish, RepoPlace, SetUp
    from codebutler.config.schema import Config
    from codebutler.domain.clock import Clock
    from codebutler.intake.repos import RepoTable
    from codebutler.protocol.messages import Finding


class SlackPlatform(Platform):
    """Slack."""

    section = SlackSection
    finds_people = True
    has_plain_notes = True
    setup_options = (
        Option(flag="--bot-token", key="slack.botToken", help="Bot token, xoxb-…"),
        Option(
            flag="--app-token",
            key="slack.appToken",
            help="App-level token with connections:write, xapp-…",
        ),
        Option(
            flag="--allow-user",
            key="slack.allowedUsers",
            help="Who may use the agents: a Slack name, e-mail or user ID; may be repeated.",
            many=True,
        ),
        Option(flag="--api-url", key="slack.apiBaseUrl", help="Another Slack-compatible server's API."),
    )
    place_options = (
        Option(flag="--channel", key="channel", help="Its channel: an ID (C…) or a name."),
        Option(flag="--create-channel", key="create", help="Create a channel with this name."),
        Option(
            flag="--invite",
            key="invite",
            help="People to invite to the new channel: a name, e-mail or user ID, or `none`; may be repeated. "
            "Defaults to all allowed users.",
            metavar="USER",
            many=True,
        ),
    )

    def check(self, config: Config) -> None:
        """Both tokens."""
        from codebutler.chat.slack.connection import SlackIntegration

        SlackIntegration.check(config)

    def open(self, given: Opening) -> Integration:
        """Its API."""
        from codebutler.chat.slack.connection import SlackIntegration

        return SlackIntegration(given)

    def manifest(self, *, link: bool) -> str:
        """The app's manifest, as JSON."""
        from codebutler.chat.slack.app import creation_link, manifest

        return (
            creation_link()
            if link
            else msgspec.json.format(msgspec.json.encode(manifest()), indent=2).decode()
        )

    async def set_up(self, wish: SetUp) -> str:
        """Asks for tokens and people, and sends a test message."""
        from codebutler.chat.slack.setup import set_up

        return await set_up(wish)

    async def place(self, wish: PlaceWish) -> RepoPlace:
        """Finds or creates a channel that has the app in it."""
        from codebutler.chat.slack.places import place

        return await place(wish)

    def new_place(self, name: str, people: Sequence[PersonRef]) -> Given:
        """A public channel; if no people are given, nobody is invited."""
        from codebutler.chat.slack.places import NOBODY

        return {"create": name, "invite": [*people] or [NOBODY]}

    def doctor(self, config: Config, table: RepoTable, clock: Clock) -> AsyncIterator[Finding]:
        """Checks tokens, scopes, the clock, and the repositories' channels."""
        from codebutler.chat.slack.app import check_slack

        return check_slack(config.slack, table, clock)

    async def find_people(
        self, config: Config, wanted: Sequence[str], warn: Callable[[str], None]
    ) -> list[Person]:
        """By name, email address or user ID."""
        from codebutler.chat.slack.places import find_people

        return await find_people(config.slack, wanted, warn)

    async def allowed(self, config: Config) -> list[Person]:
        """With their names, if there is a token to look them up."""
        if not config.slack.bot_token:
            return await super().allowed(config)
        from codebutler.chat.slack.places import described, slack_api

        async with slack_api(config.slack) as api:
            return await described(api, config.slack.allowed_users)


PLATFORM = SlackPlatform()

"""The sections about the chats and about what is said there. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from codebutler.config.schema.bounds import (
    ChannelID,
    Positive,
    Section,
    TelegramChat,
    TelegramUser,
    Url,
    UserID,
)


class SlackSection(Section, frozen=True):
    """The workspace, the repository's channel, and who may speak there."""

    bot_token: str = ""
    app_token: str = ""
    api_base_url: Url = "https://slack.com/api/"
    channel_id: ChannelID = field(default="", name="channelID")
    channel_name: str = ""
    allowed_users: tuple[UserID, ...] = ()
    listen_channels: tuple[ChannelID, ...] = ()


class TelegramSection(Section, frozen=True):
    """The bot, the repository's chat (0 = none), and who may speak there, by their numbers."""

    bot_token: str = ""
    api_base_url: Url = "https://api.telegram.org/"
    chat_id: TelegramChat = 0
    chat_name: str = ""
    allowed_users: tuple[TelegramUser, ...] = ()


class EnvelopeSection(Section, frozen=True):
    """Programs that speak in envelopes: what they are told of them, and how long is waited for one to close."""

    prompt_file: str = ""
    activation_delay_ms: Annotated[int, Meta(ge=0)] = 1500
    unclosed_timeout_ms: Positive = 30000


class OutputSection(Section, frozen=True):
    """How much is said, how often, and how long one message gets."""

    flush_interval_ms: Annotated[int, Meta(ge=250, le=3_600_000)] = 2000
    max_chars_per_message: Annotated[int, Meta(ge=200, le=11000)] = 3500
    verbosity: Literal["quiet", "normal", "verbose"] = "normal"
    progress_after_seconds: Annotated[float, Meta(ge=0, le=3600)] = 3


class CatchUpSection(Section, frozen=True):
    """Messages from while nothing ran: older ones than this are asked about instead of run."""

    max_age_hours: Annotated[float, Meta(ge=0, le=87_600)] = 12

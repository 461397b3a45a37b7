"""Which chat a channel belongs to, which chats a home serves, and how the configuration names a channel. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from codebutler.config.merge import Layer, at, put
from codebutler.config.schema import TELEGRAM, Config, telegram_id
from codebutler.errors import ConfigError

ChatName = Literal["Slack", "Telegram"]

SLACK_CHANNEL, TELEGRAM_CHAT = ("slack", "channelID"), ("telegram", "chatId")
CHANNEL_KEYS = frozenset({"slack.channelID", "telegram.chatId"})


def chat_of(channel: str) -> ChatName:
    """The chat that a channel, or a person, belongs to."""
    return "Telegram" if channel.startswith(TELEGRAM) else "Slack"


def served_chats(config: Config) -> tuple[ChatName, ...]:
    """The chats that a home has tokens for; Slack too where there is none at all, for it to say so."""
    slack = config.slack.bot_token or config.slack.app_token or not config.telegram.bot_token
    return (*(("Slack",) if slack else ()), *(("Telegram",) if config.telegram.bot_token else ()))


def channel_in(values: dict[str, Any]) -> str:
    """The channel that a layer names; "" if it names none."""
    if number := at(values, TELEGRAM_CHAT):
        return telegram_id(number)
    return at(values, SLACK_CHANNEL) or ""


def registered(channel: str, source: str, below: Iterable[Layer]) -> Layer:
    """A registered channel as a layer above all that names one. Raises ConfigError if it is none."""
    values: dict[str, Any] = {}
    path, other = SLACK_CHANNEL, TELEGRAM_CHAT
    said: str | int = channel
    if chat_of(channel) == "Telegram":
        path, other = other, path
        try:
            said = int(channel.removeprefix(TELEGRAM))
        except ValueError:
            raise ConfigError(
                f"{source}: {channel} is no Telegram chat: run `codebutler add-repo` again"
            ) from None
    put(values, path, said)
    if any(at(layer.values, other) for layer in below):
        put(values, other, 0 if other == TELEGRAM_CHAT else "")
    return Layer(source, values)

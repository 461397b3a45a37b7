"""Which chat a channel belongs to, which chats a home serves, and how the configuration names a channel. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from codebutler.config.merge import Layer, at, put
from codebutler.config.schema import TELEGRAM, Config, telegram_id
from codebutler.domain.errors import ConfigError

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


def name_channel(values: dict[str, Any], channel: str, name: str) -> None:
    """Have a layer name that channel, and none of another chat. Raises ConfigError if it is none."""
    is_telegram = chat_of(channel) == "Telegram"
    other = values.get("slack" if is_telegram else "telegram", {})
    for key in ("channelID", "channelName", "chatId", "chatName"):
        other.pop(key, None)
    put(values, *_named(channel, "the registry"))
    put(values, ("telegram", "chatName") if is_telegram else ("slack", "channelName"), name)


def registered(channel: str, source: str, below: Iterable[Layer]) -> Layer:
    """A registered channel as a layer above all that names one. Raises ConfigError if it is none."""
    values: dict[str, Any] = {}
    path, said = _named(channel, source)
    other = SLACK_CHANNEL if path == TELEGRAM_CHAT else TELEGRAM_CHAT
    put(values, path, said)
    if any(at(layer.values, other) for layer in below):
        put(values, other, 0 if other == TELEGRAM_CHAT else "")
    return Layer(source, values)


def _named(channel: str, source: str) -> tuple[tuple[str, str], str | int]:
    """The key that names the channel, and its value."""
    if chat_of(channel) == "Slack":
        return SLACK_CHANNEL, channel
    try:
        return TELEGRAM_CHAT, int(channel.removeprefix(TELEGRAM))
    except ValueError:
        raise ConfigError(
            f"{source}: {channel} is not a Telegram chat: run `codebutler add-repo` again"
        ) from None

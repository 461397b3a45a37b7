"""The chats that a home serves, and a repository's place in one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from codebutler.config.chats import SECTIONS, ChatName, section_of
from codebutler.config.merge import Layer, at, put
from codebutler.config.schema import Config
from codebutler.config.section import MetricsSection, TracingSection
from codebutler.domain.errors import ConfigError
from codebutler.domain.refs import NO_CHANNEL, ConversationRef

PLACES = tuple(each.path(each.place_field) for each in SECTIONS)
"""The keys of a repository's place, one per chat."""
CHANNEL_KEYS = frozenset(".".join(path) for path in PLACES)


def served_chats(config: Config) -> tuple[ChatName, ...]:
    """The chats that have tokens; the first chat if none has, so that it can report the problem."""
    return tuple(each.title for each in config.chats if each.has_tokens) or (SECTIONS[0].title,)


def without_chats(config: Config) -> Config:
    """The configuration without the chats, which is the same for repositories that are configured alike."""
    return msgspec.structs.replace(config, **{each.key: each() for each in SECTIONS})


def without_tokens(config: Config) -> Config:
    """As a worker is told it: of the chats only its own place, and who may speak there."""
    chats = {each.key: each.alone for each in config.chats}
    return msgspec.structs.replace(config, metrics=MetricsSection(), tracing=TracingSection(), **chats)


def channel_in(values: dict[str, Any]) -> ConversationRef:
    """The channel in a layer; "" if it has none."""
    for section, path in zip(reversed(SECTIONS), reversed(PLACES), strict=True):
        if named := at(values, path):
            return ConversationRef(f"{section.prefix}{named}")
    return NO_CHANNEL


def name_channel(values: dict[str, Any], channel: ConversationRef, name: str) -> None:
    """Set the channel of a layer, and remove other chats'. Raises ConfigError if it is invalid."""
    for each in SECTIONS:
        for attribute in (each.place_field, each.place_name_field):
            section, key = each.path(attribute)
            values.get(section, {}).pop(key, None)
    put(values, *_named(channel, "the registry"))
    its = section_of(channel)
    put(values, its.path(its.place_name_field), name)


def registered(channel: ConversationRef, source: str, below: Iterable[Layer]) -> Layer:
    """A registered channel as a layer above all others. Raises ConfigError if it is invalid."""
    values: dict[str, Any] = {}
    path, said = _named(channel, source)
    put(values, path, said)
    for other, named_as in zip(SECTIONS, PLACES, strict=True):
        if named_as != path and any(at(layer.values, named_as) for layer in below):
            put(values, named_as, getattr(other(), other.place_field))
    return Layer(source, values)


def _named(channel: ConversationRef, source: str) -> tuple[tuple[str, str], Any]:
    """The key of the channel, and its value."""
    its = section_of(channel)
    try:
        return its.path(its.place_field), its.named(channel)
    except ValueError:
        raise ConfigError(
            f"{source}: {channel} is not a {its.title} chat: run `codebutler add-repo` again"
        ) from None

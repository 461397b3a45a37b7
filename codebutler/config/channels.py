"""The chats that a home serves, a repository's place in one, and which part of a configuration workers and hosts get.
Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from codebutler.config.chats import SECTIONS, ChatName, section_of
from codebutler.config.load import Layer, put, value_at
from codebutler.config.registry import host_in
from codebutler.config.schema import Config, RepoSettings
from codebutler.config.section import BudgetSection, MetricsSection, TracingSection, limits_any
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
    return replace(config, **{each.key: each() for each in SECTIONS})


def without_tokens(config: Config) -> Config:
    """The configuration for a worker: of the chats only its own place, and who may speak there."""
    chats = {each.key: each.for_worker for each in config.chats}
    return replace(config, metrics=MetricsSection(), tracing=TracingSection(), **chats)


def settings_for_host(repo: RepoSettings) -> RepoSettings:
    """The settings that a host gets for its repository: who may speak, where, who decides, and the budget of all
    repositories together. The gateway's keys stay on the gateway."""
    chats = {each.key: getattr(repo.config, each.key).for_worker for each in SECTIONS}
    config = replace(
        Config(),
        **chats,
        authorization=repo.config.authorization,
        approvals=repo.config.approvals,
        budget=BudgetSection(total=repo.config.budget.total),
    )
    return RepoSettings(
        name=repo.name, path=repo.path, channel_id=repo.channel_id, config=config, host=host_in(repo.path)
    )


def with_gateway_settings(own: Config, given: Config) -> Config:
    """The host's own configuration with the gateway's settings. Which shell commands are allowed stays the host's own
    decision."""
    chats = {each.key: getattr(given, each.key) for each in SECTIONS}
    patterns = own.authorization
    rules = replace(given.authorization, blocklist=patterns.blocklist, allowlist=patterns.allowlist)
    total = given.budget.total if limits_any(given.budget.total) else own.budget.total
    budget = replace(own.budget, total=total)
    return replace(own, **chats, authorization=rules, approvals=given.approvals, budget=budget)


def channel_in(values: dict[str, Any]) -> ConversationRef:
    """The channel in a layer; "" if it has none."""
    for section, path in zip(reversed(SECTIONS), reversed(PLACES), strict=True):
        if place := value_at(values, path):
            return ConversationRef(f"{section.prefix}{place}")
    return NO_CHANNEL


def set_channel(values: dict[str, Any], channel: ConversationRef, name: str) -> None:
    """Set the channel of a layer, and remove other chats'. Raises ConfigError if it is invalid."""
    for each in SECTIONS:
        for attribute in (each.place_field, each.place_name_field):
            section, key = each.path(attribute)
            values.get(section, {}).pop(key, None)
    put(values, *_key_and_value(channel, "the registry"))
    chat = section_of(channel)
    put(values, chat.path(chat.place_name_field), name)


def channel_layer(channel: ConversationRef, source: str, below: Iterable[Layer]) -> Layer:
    """A registered channel as a layer above all others. Raises ConfigError if it is invalid."""
    values: dict[str, Any] = {}
    path, value = _key_and_value(channel, source)
    put(values, path, value)
    for other, other_path in zip(SECTIONS, PLACES, strict=True):
        if other_path != path and any(value_at(layer.values, other_path) for layer in below):
            put(values, other_path, getattr(other(), other.place_field))
    return Layer(source, values)


def _key_and_value(channel: ConversationRef, source: str) -> tuple[tuple[str, str], Any]:
    chat = section_of(channel)
    try:
        return chat.path(chat.place_field), chat.file_value(channel)
    except ValueError:
        raise ConfigError(
            f"{source}: {channel} is not a {chat.title} chat: run `codebutler add-repo` again"
        ) from None

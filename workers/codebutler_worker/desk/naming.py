"""Which conversation a message belongs to, and which agent is meant. Pure."""

from __future__ import annotations

from codebutler.config.schema import Config

IMAGE = "image"
"""The agent behind ``!create-image``."""

CHECKS = "checks"
"""The agent behind ``!checks``."""

UNDO = "undo"
"""The agent behind ``!undo``."""

WORDLESS = frozenset({IMAGE, CHECKS, UNDO})
"""Agents of ours, which take what was said as it is and keep no session."""

_AGENT_OF_PREFIX = {"agent": "native"}


def conversation_id(config: Config, channel: str, root_ts: str) -> str:
    """One conversation per thread, or (``agent.scope`` "channel") one for the channel."""
    return f"{channel}:" if config.agent.scope == "channel" else f"{channel}:{root_ts}"


def agent_name(config: Config, prefix: str | None) -> str:
    """The agent behind a typed prefix; no prefix means the repository's default."""
    if prefix is None:
        return config.agent.default
    return _AGENT_OF_PREFIX.get(prefix, prefix)


def prefixes_of(agent: str) -> tuple[str, ...] | None:
    """The words by which people, and the rules about them, name an agent; None for undoing, which is nobody's: who
    may undo a turn may undo that too."""
    if agent == UNDO:
        return None
    return (agent, *(prefix for prefix, name in _AGENT_OF_PREFIX.items() if name == agent))

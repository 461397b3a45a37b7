"""Which conversation a message belongs to, and which agent is meant. Pure."""

from __future__ import annotations

from typing import get_args

from codebutler.config.permission import ANY_AGENT, Prefixes, Where
from codebutler.config.programs import program_of
from codebutler.config.schema import AgentName, Config
from codebutler.protocol.messages import LogTag

IMAGE = "image"
"""The agent behind ``!create-image``."""

CHECKS = "checks"
"""The agent behind ``!checks``."""

UNDO = "undo"
"""The agent behind ``!undo``."""

WORDLESS = frozenset({IMAGE, CHECKS, UNDO})
"""Agents of ours, which take what was said as it is and keep no session."""

_AGENT_OF_PREFIX = {"agent": "native"}


_TAGS = {"claude": "CLD", "rehearsal": "CLD", "kimi": "KMI", "native": "NAT"}
"""Who works, in the log. The rehearsal agent stands in for Claude Code."""
_TAKEN = frozenset({*_TAGS.values(), "INF", "WRN", "ERR", "DBG", "MSG", "RSP", "MEM"})
OTHER_TAG = "AGT"


def tag_of(config: Config, agent: str) -> LogTag:
    """The tag of an agent's own lines in the log: of one that is configured the first three letters of its prefix. A
    program or a command of ours is none."""
    if agent in WORDLESS or program_of(config, agent) is not None:
        return "INF"
    letters = "".join(sign for sign in agent.upper() if sign.isascii() and sign.isalpha())[:3]
    own = letters if len(letters) == 3 and letters not in _TAKEN else OTHER_TAG
    return _TAGS.get(agent, own)


def conversation_id(config: Config, channel: str, root_ts: str) -> str:
    """One conversation per thread, or (``agent.scope`` "channel") one for the channel."""
    return f"{channel}:" if config.agent.scope == "channel" else f"{channel}:{root_ts}"


def agent_name(config: Config, prefix: str | None) -> str:
    """The agent behind a typed prefix; no prefix means the repository's default."""
    if prefix is None:
        return config.agent.default
    return _AGENT_OF_PREFIX.get(prefix, prefix)


def prefixes_of(agent: str) -> Prefixes:
    """The words by which people, and the rules about them, name an agent; any for undoing, which is nobody's: who
    may undo a turn may undo that too."""
    if agent == UNDO:
        return ANY_AGENT
    return (agent, *(prefix for prefix, name in _AGENT_OF_PREFIX.items() if name == agent))


def using(config: Config, channel: str, agent: str, text: str = "") -> Where:
    """Where somebody is about to use an agent there, perhaps saying ``text`` to it: what ``may`` judges."""
    return Where(config, channel, prefixes_of(agent), text)


def talks(config: Config, agent: str) -> bool:
    """Whether it reads prose: a shell or a picture's description takes no record."""
    own = {agent_name(config, rule.prefix) for rule in config.commands if rule.mode in ("headless", "acp")}
    return agent in own | set(get_args(AgentName))

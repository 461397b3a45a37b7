"""The kinds of agents, and what each kind cannot do by its nature. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from codebutler.config.choices import section_of
from codebutler.config.programs import is_headless
from codebutler.config.schema import Config
from codebutler.protocol.capabilities import CAPABILITIES, Capability
from codebutler_worker.agents.headless import remembers

AgentKind = Literal["claude", "kimi", "native", "rehearsal", "acp", "headless"]
OFFLINE = "the offline agent only follows its script"
_OURS: Mapping[str, AgentKind] = MappingProxyType(
    {"claude": "claude", "kimi": "kimi", "native": "native", "rehearsal": "rehearsal"}
)
_NO_MODES = "CodeButler knows no read-only mode of it"
_PRINTS = "a program that only prints its answer"
_FORGETS = "its `args` have no {session}, so each run is given the conversation's record"
_ALWAYS: Mapping[AgentKind, Mapping[Capability, str]] = MappingProxyType(
    {
        "native": {"image": "it reads text only", "mcp": "it has its own tools"},
        "rehearsal": dict.fromkeys((each for each in CAPABILITIES if each != "answer"), OFFLINE),
        "acp": {"plan": _NO_MODES},
        "headless": {
            "deny": f"{_PRINTS} cannot ask",
            "cost": f"{_PRINTS} reports no cost",
            "plan": _NO_MODES,
            "mcp": f"{_PRINTS} gets no MCP server",
        },
    }
)
TURNS: Mapping[str, frozenset[Capability]] = MappingProxyType(
    {
        "remember": frozenset(("answer", "cost")),
        "write": frozenset(("resume", "tools")),
        "deny": frozenset(("deny",)),
        "plan": frozenset(("plan",)),
        "stop": frozenset(("stop",)),
        "kill": frozenset(("resume-after-kill",)),
        "recall": frozenset(("resume-after-kill",)),
        "image": frozenset(("image",)),
        "mcp": frozenset(("mcp",)),
    }
)
"""The turns of a trial, and what each shows."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One agent to be tried. ``unsupported``: what it cannot do by its nature, each with the reason."""

    name: str
    kind: AgentKind
    unsupported: Mapping[Capability, str] = field(default_factory=dict)

    @property
    def turns(self) -> tuple[str, ...]:
        """The turns that show something about it."""
        return tuple(name for name, shown in TURNS.items() if shown - self.unsupported.keys())


def subject_of(config: Config, name: str) -> Subject:
    """The agent of that name as it is configured."""
    rule = next((rule for rule in config.commands if rule.prefix == name), None)
    if rule is not None and is_headless(rule):
        forgets: dict[Capability, str] = (
            {} if remembers(rule) else {"resume": _FORGETS, "resume-after-kill": _FORGETS}
        )
        return Subject(name, "headless", {**_ALWAYS["headless"], **forgets})
    ours = rule is None or section_of(config, name) is not None
    kind = _OURS.get(name, "acp") if ours else "acp"
    return Subject(name, kind, _ALWAYS.get(kind, {}))

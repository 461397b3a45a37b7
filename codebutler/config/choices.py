"""A thread's own settings: an agent, its model, and how freely it may work. Pure. The configuration is the limit: a
mode that asks less than the configured one applies only for people in ``authorization.mayLoosen``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from msgspec.structs import replace

from codebutler.config.schema import ClaudeSection, Config, KimiSection, NativeSection, PermissionMode

MODES: Mapping[str, PermissionMode] = MappingProxyType(
    {"plan": "plan", "ask": "ask", "edit": "acceptEdits", "full": "bypassPermissions"}
)
"""Name to setting, strictest first."""
Mode = PermissionMode | Literal[""]
MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@\[\]-]{0,99}")
DEFAULT_MODEL = "default"
"""Claude Code's default model, by name: without it, a session that used another keeps that one (2.1.328)."""
_SECTIONS = ("claude", "kimi", "native")
ModelSection = ClaudeSection | KimiSection | NativeSection
"""The settings of an agent with a model and mode of ours."""


@dataclass(frozen=True, slots=True)
class Choice:
    """For one agent; "" = as configured."""

    model: str = ""
    mode: Mode = ""


CONFIGURED = Choice()


def section_of(config: Config, agent: str) -> ModelSection | None:
    """The agent's settings; None for an agent without a model and mode of ours."""
    rule = next((rule for rule in config.commands if rule.prefix == agent), None)
    is_another = rule is not None and (
        rule.mode in ("interactive", "one-shot") or (rule.mode == "acp" and (agent != "kimi" or rule.args))
    )
    if agent not in _SECTIONS or is_another:
        return None
    found: ModelSection = getattr(config, agent)
    return found


def word_for(mode: str) -> str:
    """The mode's name for people."""
    return next((word for word, each in MODES.items() if each == mode), mode)


def is_looser(config: Config, agent: str, mode: Mode) -> bool:
    """Whether the agent would ask less than it is configured to."""
    section = section_of(config, agent)
    if section is None or not mode:
        return False
    strictest_first = [*MODES.values()]
    return strictest_first.index(mode) > strictest_first.index(section.permission_mode)


def with_choice(config: Config, agent: str, choice: Choice) -> Config:
    """The configuration that the agent runs with."""
    section = section_of(config, agent)
    if section is None or choice == CONFIGURED:
        return config
    model = choice.model or section.model
    if choice.model == DEFAULT_MODEL:
        model = section.model or DEFAULT_MODEL
    changed = replace(section, model=model, permission_mode=choice.mode or section.permission_mode)
    return replace(config, **{agent: changed})


def usual_model(section: ModelSection) -> str:
    """The choice that restores the configured model in a session."""
    return DEFAULT_MODEL if isinstance(section, ClaudeSection) else ""

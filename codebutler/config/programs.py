"""The programs behind prefixes (`run`, `checks`, `commands`), which of them are shells, and the image for agents; and a
thread's own settings: an agent, its model, and how freely it may work. Pure.

The patterns of `authorization` apply to a shell's input. They catch accidents: a shell has countless ways to say the
same; the sandbox is the boundary. RE2 matches them in time linear in the length of the text, for any pattern and text
(github.com/google/re2).

The configuration is a thread's limit: a mode that asks less than the configured one applies only for people in
``authorization.mayLoosen``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.schema import (
    AgentName,
    ClaudeSection,
    CommandRule,
    Config,
    KimiSection,
    NativeSection,
    PermissionMode,
)

RUN = CommandRule(prefix="run", binary="bash", args=("-c",), description="Run a shell command")

CHECKS = CommandRule(prefix="checks", binary="bash", args=("-c",), description="Run the repository's checks")
UNDO = "undo"
"""The agent behind ``!undo``."""
_OURS = {rule.prefix: rule for rule in (RUN, CHECKS)}
NATIVE_PREFIX = "agent"
"""What people write before a task for the native agent."""
SHELLS = frozenset({"ash", "bash", "dash", "fish", "ksh", "mksh", "sh", "zsh"})
MAX_SHELL_CHARS = 2000
"""The longest text to match. Nobody reads longer ones before they run."""
RUNNER = "codebutler-runner"
BASE = "debian:bookworm-slim"
IDLER = "/.codebutler/cat"
"""A container's first process. Nobody may read the file: so the kernel lets no agent, who is the same user, write that
process's memory or open its files (PR_SET_DUMPABLE)."""
TOOLS = "bash ca-certificates curl git jq less make openssh-client patch procps python3 ripgrep unzip"
# A base with git has everything we need: then nothing is fetched, unless more packages are given.
DOCKERFILE = f"""
ARG BASE
FROM ${{BASE}}
ARG PACKAGES
ARG TOOLS
RUN set -e; \\
    if [ -n "$PACKAGES" ] || ! command -v git > /dev/null; then \\
        apt-get update && apt-get install -y --no-install-recommends $TOOLS $PACKAGES && \\
        rm -rf /var/lib/apt/lists/*; \\
    fi; \\
    grep -q '^[^:]*:[^:]*:1000:' /etc/passwd || echo 'agent:x:1000:1000::/workspace:/bin/sh' >> /etc/passwd; \\
    mkdir -p /workspace /tmp /.codebutler && chmod 1777 /tmp; \\
    cp "$(command -v cat)" {IDLER} && chmod 0111 {IDLER}
WORKDIR /workspace
"""
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


def program_of(config: Config, prefix: str) -> CommandRule | None:
    """The program that the prefix starts in a terminal, None if it names an agent. A configured one replaces
    ours with the same prefix."""
    rule = next((rule for rule in config.commands if rule.prefix == prefix), None)
    if rule is None:
        return _OURS.get(prefix)
    return rule if rule.mode in ("interactive", "one-shot") else None


def uses_model(config: Config, agent: str) -> bool:
    """Whether the agent's runs use a model: programs and our own commands do not."""
    return agent != UNDO and program_of(config, agent) is None


def is_headless(rule: CommandRule) -> bool:
    """Whether the rule makes a program an agent that gets a prompt and prints an answer. Claude Code and our own agent
    have rules of this mode too, but separate backends."""
    return rule.mode == "headless" and rule.prefix not in ("claude", NATIVE_PREFIX)


def agents_of(config: Config) -> tuple[str, ...]:
    """The agents that can answer plain messages: our own and those that `commands` adds, except those whose prefix
    starts a program."""
    added = [rule.prefix for rule in config.commands if rule.mode == "acp" or is_headless(rule)]
    return tuple(
        name for name in dict.fromkeys((*get_args(AgentName), *added)) if program_of(config, name) is None
    )


def agent_fault(config: Config, name: str) -> str:
    """Why plain messages cannot go to it, in words that follow the key; "" if they can."""
    known = agents_of(config)
    if name in (*known, NATIVE_PREFIX):
        return ""
    return f"expected one of {', '.join(known)}, or the prefix of an agent (acp, headless) in commands"


def successor_of(config: Config) -> str:
    """The agent, as ``agent.onLimit`` names it, that takes over from one whose usage limit is hit; "" if none does."""
    return config.agent.on_limit.partition(" ")[2]


def is_session(config: Config, prefix: str) -> bool:
    """Whether people type into it, so that it may start without a text."""
    rule = program_of(config, prefix)
    return rule is not None and rule.mode == "interactive"


def program_names(config: Config) -> frozenset[str]:
    """Every prefix that starts a program."""
    prefixes = {*_OURS, *(rule.prefix for rule in config.commands)}
    return frozenset(name for name in prefixes if program_of(config, name) is not None)


def parallel_programs(config: Config) -> frozenset[str]:
    """The programs that may run beside an agent's turn: all but the checks, which need a tree at rest."""
    return program_names(config) - {CHECKS.prefix}


def is_shell(config: Config, prefix: str) -> bool:
    """Whether a shell reads the text after the prefix, or typed into its session."""
    rule = program_of(config, prefix)
    return prefix == RUN.prefix or (rule is not None and PurePath(rule.binary).name in SHELLS)


def objection_to(config: Config, prefix: str, text: str) -> str:
    """Why the request to the shell must not run, in words that follow "That command is"; "" if it may."""
    return objection_to_lines(config, text) if is_session(config, prefix) else objection(config, text)


def objection(config: Config, command: str) -> str:
    """Why the command must not run, in words that follow "That command is"; "" if it may."""
    rules = config.authorization
    if len(command) > MAX_SHELL_CHARS:
        return f"longer than {MAX_SHELL_CHARS} characters (put it in a script)"
    if _matches_any(rules.blocklist, command):
        return "on the blocklist"
    if rules.allowlist and not _matches_any(rules.allowlist, command):
        return "not on the allowlist"
    return ""


def pattern_fault(pattern: str) -> str:
    """Why RE2 cannot take ``pattern``, in words that follow its key; "" if it can."""
    import re2

    try:
        _compile(pattern)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        return (
            f"expected a regular expression in RE2 syntax, without look-around and back-references ({reason})"
        )
    return ""


def _matches_any(patterns: tuple[str, ...], command: str) -> bool:
    # RE2 accepts no half of a surrogate pair, and its $ is the very end.
    text = command.encode(errors="replace").decode().rstrip("\n")
    return any(_compile(pattern).search(text) for pattern in patterns)


def _compile(pattern: str) -> Any:
    """RE2 itself caches the most recent ones."""
    import re2  # a few MB, not needed without patterns

    options = re2.Options()
    options.log_errors = False  # its own lines on stderr
    return re2.compile(pattern, options)


def objection_to_lines(config: Config, text: str) -> str:
    """The same for typed text: the first objection to one of its lines."""
    lines = (line for line in text.splitlines() if line.strip())
    return next((why for line in lines if (why := objection(config, line))), "")


class Choice(Struct, frozen=True):
    """For one agent; "" = as configured."""

    model: str = ""
    mode: Mode = ""


CONFIGURED = Choice()


def model_section_of(config: Config, agent: str) -> ModelSection | None:
    """The agent's settings; None for an agent without a model and mode of ours."""
    rule = next((rule for rule in config.commands if rule.prefix == agent), None)
    is_replaced = rule is not None and (
        rule.mode in ("interactive", "one-shot") or (rule.mode == "acp" and (agent != "kimi" or rule.args))
    )
    if agent not in _SECTIONS or is_replaced:
        return None
    found: ModelSection = getattr(config, agent)
    return found


def mode_name(mode: str) -> str:
    """The mode's name for people."""
    return next((word for word, each in MODES.items() if each == mode), mode)


def is_looser(config: Config, agent: str, mode: Mode) -> bool:
    """Whether the agent would ask less than it is configured to."""
    section = model_section_of(config, agent)
    if section is None or not mode:
        return False
    strictest_first = [*MODES.values()]
    return strictest_first.index(mode) > strictest_first.index(section.permission_mode)


def with_choice(config: Config, agent: str, choice: Choice) -> Config:
    """The configuration that the agent runs with."""
    section = model_section_of(config, agent)
    if section is None or choice == CONFIGURED:
        return config
    model = choice.model or section.model
    if choice.model == DEFAULT_MODEL:
        model = section.model or DEFAULT_MODEL
    changed = replace(section, model=model, permission_mode=choice.mode or section.permission_mode)
    return replace(config, **{agent: changed})


def configured_model(section: ModelSection) -> str:
    """The choice that restores the configured model in a session."""
    return DEFAULT_MODEL if isinstance(section, ClaudeSection) else ""

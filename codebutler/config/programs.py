"""The programs behind prefixes: `run`, `checks` and what `commands` adds. Pure."""

from __future__ import annotations

from codebutler.config.schema import CommandRule, Config

RUN = CommandRule(prefix="run", binary="bash", args=("-c",), description="Run a shell command")

CHECKS = CommandRule(prefix="checks", binary="bash", args=("-c",), description="Run the repository's checks")
_OURS = {rule.prefix: rule for rule in (RUN, CHECKS)}


def program_of(config: Config, prefix: str) -> CommandRule | None:
    """The program that the prefix starts under a terminal, None where it names an agent. A configured one with the
    same prefix replaces one of ours."""
    rule = next((rule for rule in config.commands if rule.prefix == prefix), None)
    if rule is None:
        return _OURS.get(prefix)
    return rule if rule.mode in ("interactive", "one-shot") else None


def is_headless(rule: CommandRule) -> bool:
    """The rule makes any program an agent that is given a prompt and prints an answer. Claude Code and our own agent,
    which have rules of this mode too, are reached in ways of their own."""
    return rule.mode == "headless" and rule.prefix not in ("claude", "agent")


def is_session(config: Config, prefix: str) -> bool:
    """People type into it, so that it may begin without a word."""
    rule = program_of(config, prefix)
    return rule is not None and rule.mode == "interactive"


def program_names(config: Config) -> frozenset[str]:
    """Every prefix that starts a program."""
    named = {*_OURS, *(rule.prefix for rule in config.commands)}
    return frozenset(name for name in named if program_of(config, name) is not None)


def beside(config: Config) -> frozenset[str]:
    """The programs that may run beside an agent's turn: all but the checks, which are of a tree at rest."""
    return program_names(config) - {CHECKS.prefix}

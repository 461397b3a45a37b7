"""The patterns of `authorization` that are tried on what a shell is given. Pure.

They catch accidents. A shell has countless ways to say the same; the sandbox is the boundary.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from codebutler.config.programs import RUN, is_session, program_of
from codebutler.config.schema import Config

SHELLS = frozenset({"ash", "bash", "dash", "fish", "ksh", "mksh", "sh", "zsh"})
MAX_SHELL_CHARS = 2000
"""What the patterns are tried on: some take time that grows with the square of the length."""


def is_shell(config: Config, prefix: str) -> bool:
    """Whether what is said after the prefix, or typed into its session, is read by a shell."""
    rule = program_of(config, prefix)
    return prefix == RUN.prefix or (rule is not None and PurePath(rule.binary).name in SHELLS)


def objection_to(config: Config, prefix: str, text: str) -> str:
    """Why what is said to the agent must not run, in words that follow "That command is"; "" if it may. Shells alone
    are judged."""
    if not is_shell(config, prefix):
        return ""
    return objection_to_lines(config, text) if is_session(config, prefix) else objection(config, text)


def objection(config: Config, command: str) -> str:
    """Why the command must not run, in words that follow "That command is"; "" if it may."""
    rules = config.authorization
    if len(command) > MAX_SHELL_CHARS:
        return f"longer than {MAX_SHELL_CHARS} characters (put it into a script)"
    if any(re.search(pattern, command) for pattern in rules.blocklist):
        return "on the blocklist"
    if rules.allowlist and not any(re.search(pattern, command) for pattern in rules.allowlist):
        return "not on the allowlist"
    return ""


def objection_to_lines(config: Config, text: str) -> str:
    """The same for what is typed: the first objection to one of its lines."""
    lines = (line for line in text.splitlines() if line.strip())
    return next((why for line in lines if (why := objection(config, line))), "")

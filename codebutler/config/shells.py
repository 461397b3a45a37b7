"""The patterns of `authorization` that are tried on what a shell is given. Pure.

They catch accidents. A shell has countless ways to say the same; the sandbox is the boundary. RE2 tries them: in time
that grows with the length of the text, whatever the pattern and the text are (github.com/google/re2).
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from codebutler.config.programs import RUN, is_session, program_of
from codebutler.config.schema import Config

SHELLS = frozenset({"ash", "bash", "dash", "fish", "ksh", "mksh", "sh", "zsh"})
MAX_SHELL_CHARS = 2000
"""What the patterns are tried on. Longer ones nobody reads before they run."""


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
    if _fits(rules.blocklist, command):
        return "on the blocklist"
    if rules.allowlist and not _fits(rules.allowlist, command):
        return "not on the allowlist"
    return ""


def pattern_fault(pattern: str) -> str:
    """Why RE2 cannot take ``pattern``, in words that follow its key; "" if it can."""
    import re2

    try:
        _compiled(pattern)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        return f"expected a regular expression without look-around and back-references, as RE2 has them ({reason})"
    return ""


def _fits(patterns: tuple[str, ...], command: str) -> bool:
    # RE2 takes no half of a surrogate pair, and its $ is the very end.
    text = command.encode(errors="replace").decode().rstrip("\n")
    return any(_compiled(pattern).search(text) for pattern in patterns)


def _compiled(pattern: str) -> Any:
    """RE2 itself keeps the last that were compiled."""
    import re2  # a few MB, which who tries no pattern does not need

    options = re2.Options()
    options.log_errors = False  # its own lines on stderr
    return re2.compile(pattern, options)


def objection_to_lines(config: Config, text: str) -> str:
    """The same for what is typed: the first objection to one of its lines."""
    lines = (line for line in text.splitlines() if line.strip())
    return next((why for line in lines if (why := objection(config, line))), "")

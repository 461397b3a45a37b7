"""How a program that takes a prompt and prints an answer is started. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import NAMESPACE_URL, uuid5

from codebutler.config.schema import CommandRule
from codebutler.domain.errors import AgentUnavailableError

PROMPT, SESSION, SESSION_UUID = "{prompt}", "{session}", "{sessionUuid}"
FROM_STDIN = "-"
MAX_ARGUMENT_BYTES = 128 * 2**10 - 1
"""Linux: MAX_ARG_STRLEN without its NUL (execve(2))."""


@dataclass(frozen=True, slots=True)
class Call:
    """The command line, and what goes into its standard input."""

    argv: tuple[str, ...]
    stdin: bytes = b""


def remembers(rule: CommandRule) -> bool:
    """Whether it is told which conversation it goes on with."""
    return any(SESSION in word or SESSION_UUID in word for word in rule.args)


def call(rule: CommandRule, program: Sequence[str], prompt: str, session: str) -> Call:
    """How ``program`` is started. The prompt stands where ``{prompt}`` does, in standard input if the arguments end
    with ``-``, else at the end.

    Raises AgentUnavailableError if it is too long for an argument.
    """
    named = {SESSION: session, SESSION_UUID: str(uuid5(NAMESPACE_URL, session))}
    words = [_filled(word, named) for word in rule.args]
    if words and words[-1] == FROM_STDIN:
        return Call((*program, *words), prompt.encode(errors="replace"))
    text = _no_option(prompt.replace("\0", ""))
    if len(text.encode(errors="replace")) > MAX_ARGUMENT_BYTES:
        raise AgentUnavailableError(
            f"{rule.prefix}: the prompt is too long for an argument: let its `args` end with `-`, "
            "if it reads the prompt from its standard input"
        )
    if any(PROMPT in word for word in words):
        return Call((*program, *(word.replace(PROMPT, text) for word in words)))
    return Call((*program, *words, text))


def _filled(word: str, named: dict[str, str]) -> str:
    for place, value in named.items():
        word = word.replace(place, value)
    return word


def _no_option(text: str) -> str:
    """What somebody says is no option, however it begins."""
    return f" {text}" if text.startswith("-") else text

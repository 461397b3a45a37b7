"""How a service wants to be asked where services differ, and what a refusal teaches of that. Pure.

Sources: DeepSeek and Moonshot refuse a conversation with tool calls unless each of them comes with its
``reasoning_content`` (api-docs.deepseek.com/guides/thinking_mode; "thinking is enabled but reasoning_content is missing
in assistant tool call message", where an empty one counts as missing and a space does not: theopenco/llmgateway #2093),
Mistral and Groq refuse the same field (BerriAI/litellm #30835, janhq/jan #8136). Mistral takes no
``max_completion_tokens`` (editor-code-assistant/eca #231) and, like many chat templates, no ``user`` after ``tool``
("invalid_request_message_order", BerriAI/litellm #17761).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from codebutler_worker.agents.native.model import Assistant, Message, Told, User

OPTIONAL = ("stream_options", "max_completion_tokens", "extra_content")
"""What we send, and can do without."""
UNWANTED = (
    "extra_forbidden",
    "not permitted",
    "unsupported",
    "not supported",
    "unknown",
    "unrecognized",
    "unexpected",
)
WANTED = ("passed back", "missing")
OUT_OF_ORDER = (
    "after role 'tool'",
    'after role "tool"',
    "roles must alternate",
    "invalid_request_message_order",
)
HEARD = Assistant("Understood.")
"""Stands between a tool's result and what a person says, where a service wants somebody to answer first."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """``reasoning``: whether an answer's reasoning is sent back with it, "always" also where there was none.
    ``without``: fields that the service does not take. ``alternating``: nobody speaks twice in a row."""

    reasoning: Literal["never", "own", "always"] = "never"
    without: frozenset[str] = frozenset()
    alternating: bool = False


def learned(dialect: Dialect, said: str) -> Dialect | None:
    """The dialect to try after a refusal in these words, None if they teach nothing."""
    words = said.lower()
    unwanted = any(mark in words for mark in UNWANTED)
    better = dialect
    if "reasoning_content" in words:
        if unwanted:
            better = replace(dialect, reasoning="never")
        elif any(mark in words for mark in WANTED):
            better = replace(dialect, reasoning="always")
    elif any(mark in words for mark in OUT_OF_ORDER):
        better = replace(dialect, alternating=True)
    elif unwanted:
        better = replace(dialect, without=dialect.without | {name for name in OPTIONAL if name in words})
    return None if better == dialect else better


def alternated(messages: Sequence[Message]) -> list[Message]:
    """The same conversation, in which an assistant answers before a person goes on."""
    found: list[Message] = []
    for message in messages:
        before = found[-1] if found else None
        if isinstance(message, User) and isinstance(before, User):
            found[-1] = User(f"{before.content}\n\n{message.content}")
            continue
        if isinstance(message, User) and isinstance(before, Told):
            found.append(HEARD)
        found.append(message)
    return found

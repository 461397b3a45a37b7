"""How services differ: the requests they accept, what their refusals mean, and when to retry. Pure.

Sources: DeepSeek and Moonshot refuse a conversation with tool calls unless each of them comes with its
``reasoning_content`` (api-docs.deepseek.com/guides/thinking_mode; "thinking is enabled but reasoning_content is missing
in assistant tool call message", where an empty one counts as missing and a space does not: theopenco/llmgateway #2093),
Mistral and Groq refuse the same field (BerriAI/litellm #30835, janhq/jan #8136). Mistral accepts no
``max_completion_tokens`` (editor-code-assistant/eca #231) and, like many chat templates, no ``user`` after ``tool``
("invalid_request_message_order", BerriAI/litellm #17761).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from codebutler_worker.agents.native.model import (
    AssistantMessage,
    Message,
    ModelError,
    ToolMessage,
    UserMessage,
)

OPTIONAL = ("stream_options", "max_completion_tokens", "extra_content")
"""Fields that we send but can do without."""
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
HEARD = AssistantMessage("Understood.")
"""Placed between a tool's result and a person's message, for services that want an assistant message in between."""

MOST_RETRIES = 4
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
LONGEST_WAIT_S = 60.0
"""If a service wants a longer pause than this, it is asked again later, once the turn has been parked."""

# How services say that a conversation does not fit: OpenAI and vLLM ("maximum context length is 16384 tokens",
# vllm-project/vllm #20409; "max_tokens must be at least 1, got -186", #4667), llama.cpp ("the request exceeds the
# available context size", with status 400 or 500, ggml-org/llama.cpp #15780), Gemini ("The input token count (1200293)
# exceeds the maximum number of tokens allowed (1048576)", google-gemini/gemini-cli #6678), xAI ("maximum prompt length
# is 131072 but the request contains 136973 tokens", cline/cline #3120), Anthropic behind a gateway ("prompt is too
# long: 202128 tokens > 200000 maximum"), Groq, LM Studio, MiniMax, Bedrock, Moonshot, llama-cpp-python.
TOO_LONG = (
    "context_length",
    "context length",
    "context size",
    "context window",
    "exceed_context_size",
    "maximum context",
    "maximum prompt length",
    "input token count",
    "input is too long",
    "too many tokens",
    "prompt is too long",
    "reduce the length",
    "token limit",
    "max_tokens must be at least 1",
)
_LIMIT = re.compile(
    r"\"n_ctx\":\s*(\d{3,9})|context size \((\d{3,9}) tokens|maximum (?:context|prompt) length (?:is|of) (\d{3,9})"
    r"|tokens allowed \((\d{3,9})\)|> (\d{3,9}) maximum|(\d{3,9}) maximum context length"
    r"|context window of (\d{3,9})"
)
NO_QUOTA = ("insufficient_quota", "exceeded_current_quota", "billing", "insufficient balance")


class Dialect(Struct, frozen=True):
    """The peculiarities of a service. ``reasoning``: whether an answer's reasoning is sent back with it, "always" even
    if there was none. ``without``: fields that the service refuses. ``alternating``: no role speaks twice in a row."""

    reasoning: Literal["never", "own", "always"] = "never"
    without: frozenset[str] = frozenset()
    alternating: bool = False


def learned(dialect: Dialect, said: str) -> Dialect | None:
    """The dialect to try after a refusal with this text, None if the text is no help."""
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
    """The same conversation, with an assistant message before each message of a person."""
    found: list[Message] = []
    for message in messages:
        before = found[-1] if found else None
        if isinstance(message, UserMessage) and isinstance(before, UserMessage):
            found[-1] = UserMessage(f"{before.content}\n\n{message.content}")
            continue
        if isinstance(message, UserMessage) and isinstance(before, ToolMessage):
            found.append(HEARD)
        found.append(message)
    return found


def refusal(status: int, code: str, said: str, retry_after_s: float | None, words: str = "") -> ModelError:
    """The error for an HTTP status; ``code`` and ``said`` are the service's own words on one line, ``words`` its whole
    text."""
    short, words = f"{code} {said}".lower(), f"{code} {said} {words}".lower()
    detail = f": {said}" if said else ""
    if status in (401, 403):
        return ModelError("auth", f"the model service refuses the key (status {status}): check native.apiKey")
    if status == 402 or (status == 429 and any(mark in short for mark in NO_QUOTA)):
        return ModelError("quota", f"the model service requires payment first{detail}")
    if status == 404:
        return ModelError(
            "refused", f"no such model or address: check native.model and native.baseUrl{detail}"
        )
    if status == 413 or (status != 429 and any(mark in words for mark in TOO_LONG)):
        text = f"the conversation is too long for the model{detail}"
        return ModelError("too_long", text, said=words, context=_limit_in(words))
    if status == 429:
        return ModelError("limit", f"the model service is at its limit{detail}", retry_after_s)
    if status in (408, 409) or status >= 500:
        text = f"the model service is unavailable (status {status}){detail}"
        return ModelError("overloaded", text, retry_after_s, said=words)
    return ModelError(
        "refused", f"the model service refuses the request (status {status}){detail}", said=words
    )


def _limit_in(words: str) -> int | None:
    """The service's context size in tokens, from its error text."""
    found = _LIMIT.search(words)
    return int(next(number for number in found.groups() if number)) if found else None


def pause_s(error: ModelError, retries: int, chance: float) -> float | None:
    """Seconds until the next try, None for no retry. ``chance`` is from [0, 1): full jitter."""
    if error.trouble not in ("limit", "overloaded", "unreachable") or retries >= MOST_RETRIES:
        return None
    if error.retry_after_s is not None:
        return error.retry_after_s if error.retry_after_s <= LONGEST_WAIT_S else None
    return FIRST_PAUSE_S / 2 + chance * min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**retries)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds from ``retry-after-ms`` or ``Retry-After`` (RFC 9110: seconds or a date); None without one."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        seconds = _number(headers.get(name, ""))
        if seconds is not None:
            return max(0.0, seconds * unit_s)
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, float((moment - now).total_seconds()))


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None

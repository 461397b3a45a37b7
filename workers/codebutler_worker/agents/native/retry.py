"""What a refused request means, and whether it is sent again. Pure: chance and the time are arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from codebutler_worker.agents.native.model import ModelError

MOST_RETRIES = 4
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
LONGEST_WAIT_S = 60.0
"""A service that wants more than this is asked again later, when the turn has been parked."""

TOO_LONG = (
    "context_length",
    "context length",
    "maximum context",
    "too many tokens",
    "prompt is too long",
    "token limit",
)
NO_QUOTA = ("insufficient_quota", "exceeded_current_quota", "billing", "insufficient balance")


def refusal(status: int, code: str, said: str, retry_after_s: float | None) -> ModelError:
    """The error for an HTTP status; ``code`` and ``said`` are the service's own words, on one line."""
    words = f"{code} {said}".lower()
    detail = f": {said}" if said else ""
    if status in (401, 403):
        return ModelError("auth", f"the model service refuses the key (status {status}): check native.apiKey")
    if status == 402 or (status == 429 and any(mark in words for mark in NO_QUOTA)):
        return ModelError("quota", f"the model service wants to be paid first{detail}")
    if status == 404:
        return ModelError(
            "refused", f"no such model or address: check native.model and native.baseUrl{detail}"
        )
    if status == 413 or (status in (400, 422) and any(mark in words for mark in TOO_LONG)):
        return ModelError("too_long", f"the conversation is too long for the model{detail}")
    if status == 429:
        return ModelError("limit", f"the model service is at its limit{detail}", retry_after_s)
    if status in (408, 409) or status >= 500:
        return ModelError(
            "overloaded", f"the model service is out of order (status {status}){detail}", retry_after_s
        )
    return ModelError("refused", f"the model service refuses the request (status {status}){detail}")


def pause_s(error: ModelError, retries: int, chance: float) -> float | None:
    """How long to wait before the next try, None if there is none. ``chance`` is from [0, 1): full jitter."""
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

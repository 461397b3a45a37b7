"""What an answer of the Web API, or its absence, means: each outcome becomes one of our errors. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codebutler.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)

DEFAULT_RETRY_AFTER_S = 30.0
MAX_RETRY_AFTER_S = 900.0

# Slack's words for "this token is of no use", whichever method was called.
TOKEN_REFUSED = frozenset(
    {
        "account_inactive",
        "invalid_auth",
        "not_allowed_token_type",
        "not_authed",
        "org_login_required",
        "token_expired",
        "token_revoked",
    }
)
# Slack: "it's possible some aspect of the operation succeeded before the error was raised".
# file_update_failed: files.completeUploadExternal is to be called again.
HALF_DONE = frozenset(
    {"fatal_error", "file_update_failed", "internal_error", "request_timeout", "service_unavailable"}
)
RATE_LIMITED = frozenset({"ratelimited", "rate_limited"})


@dataclass(frozen=True, slots=True)
class Call:
    """One call: ``write`` if doing it twice shows, ``key`` the configuration key of its token."""

    method: str
    write: bool = False
    key: str = "slack.botToken"


def refusal(call: Call, status: int, headers: Mapping[str, str], body: object) -> ChatError:
    """The error in an answer that is not ``ok: true``."""
    code = _code(body)
    if status == 429 or code in RATE_LIMITED:
        return ChatRateLimitedError(retry_after_s(headers.get("Retry-After")))
    if code in TOKEN_REFUSED:
        return ChatAuthError(
            f"Slack refuses {call.key} ({code}): issue a new one and run `codebutler setup`", code
        )
    if not code or code in HALF_DONE or status >= 500:
        return interrupted(call, code or f"status {status}")
    return ChatError(f"Slack refused {call.method}: {code}{_detail(body)}", code)


def interrupted(call: Call, why: str) -> ChatError:
    """The request went out and no usable answer came back."""
    if call.write:
        return ChatOutcomeUnknownError(
            f"no clear answer from Slack to {call.method}: {why}", "outcome_unknown"
        )
    return ChatUnreachableError(f"no answer from Slack to {call.method}: {why}", "unreachable")


def unreachable(call: Call, why: str) -> ChatError:
    """The request never left."""
    return ChatUnreachableError(f"Slack cannot be reached for {call.method}: {why}", "unreachable")


def retry_after_s(header: str | None) -> float:
    """Seconds of a Retry-After header, within reason; half a minute where it says nothing usable."""
    try:
        seconds = float(header or "")
    except ValueError:
        return DEFAULT_RETRY_AFTER_S
    if not math.isfinite(seconds) or seconds < 0:
        return DEFAULT_RETRY_AFTER_S
    return min(seconds, MAX_RETRY_AFTER_S)


def _code(body: object) -> str:
    code = body.get("error") if isinstance(body, Mapping) else None
    return code if isinstance(code, str) else ""


def _detail(body: object) -> str:
    """Slack names the missing scope, or the fault in a block, beside the code."""
    if not isinstance(body, Mapping):
        return ""
    needed: Any = body.get("needed")
    metadata: Any = body.get("response_metadata")
    messages: Any = metadata.get("messages") if isinstance(metadata, Mapping) else None
    if isinstance(needed, str):
        return f" (needs {needed})"
    if isinstance(messages, list) and messages:
        return f" ({str(messages[0])[:200]})"
    return ""

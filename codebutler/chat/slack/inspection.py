"""What Slack tells of a token beside the answer: the granted scopes, and what time it is there.

Slack: auth.test; the header ``x-oauth-scopes`` lists the token's scopes, ``Date`` is HTTP's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp

from codebutler.chat.slack.http import Call, refusal, unreachable
from codebutler.chat.slack.tokens import check_bot_token
from codebutler.domain.clock import Clock
from codebutler.platform.http import proxy_for

TIMEOUT_S = 15.0
CALL = Call("auth.test")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """``scopes`` is None where the server tells none. ``ahead_s``: how far our clock is ahead of Slack's (to
    a second or so), None if it does not say."""

    team: str
    user_id: str
    scopes: frozenset[str] | None
    ahead_s: float | None


async def inspect_token(token: str, base_url: str, clock: Clock) -> TokenFacts:
    """Ask Slack about a bot token. Raises ChatAuthError, ChatRateLimitedError, ChatUnreachableError."""
    headers = {"Authorization": f"Bearer {check_bot_token(token)}"}
    url = f"{base_url.rstrip('/')}/{CALL.method}"
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, headers=headers, proxy=proxy_for(url), allow_redirects=False) as answer,
        ):
            heard_at = clock.now()
            body: Any = await answer.json(content_type=None)
            if answer.status != 200 or not isinstance(body, dict) or body.get("ok") is not True:
                raise refusal(CALL, answer.status, answer.headers, body)
            return _facts(body, answer.headers, heard_at)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise unreachable(CALL, type(error).__name__) from None


def _facts(body: Mapping[str, Any], headers: Mapping[str, str], heard_at: datetime) -> TokenFacts:
    scopes = headers.get("x-oauth-scopes")
    return TokenFacts(
        team=str(body.get("team") or body.get("team_id") or ""),
        user_id=str(body.get("user_id") or ""),
        scopes=None if scopes is None else frozenset(filter(None, map(str.strip, scopes.split(",")))),
        ahead_s=ahead_of(headers.get("Date", ""), heard_at),
    )


def ahead_of(date: str, now: datetime) -> float | None:
    """Seconds by which ``now`` is ahead of an HTTP date; None if that is none. Its second is taken as half over."""
    try:
        there = parsedate_to_datetime(date)
    except ValueError:
        return None
    return (now - there.astimezone(UTC)).total_seconds() - 0.5

"""Frames, outcomes and endpoints: the pure edges of the Slack side."""

from __future__ import annotations

import json
from random import Random

import pytest

from codebutler.chat.slack.http import ApiCall, check_app_token, check_bot_token, refusal, retry_after_s
from codebutler.chat.slack.link import DisconnectFrame, HelloFrame, SocketEnvelope, parse_frame
from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.platform.http import is_local_url, proxy_for
from codebutler.platform.tasks import full_jitter_s

WRITE = ApiCall("chat.postMessage", write=True)
READ = ApiCall("conversations.history")


def test_hello_and_disconnect() -> None:
    hello = b'{"type":"hello","num_connections":2,"connection_info":{"app_id":"A"}}'
    assert parse_frame(hello) == HelloFrame(2)
    assert parse_frame(b'{"type":"disconnect","reason":"warning"}') == DisconnectFrame("warning")


def test_envelope() -> None:
    raw = {
        "envelope_id": "e",
        "type": "slash_commands",
        "accepts_response_payload": True,
        "retry_attempt": 2,
        "retry_reason": "timeout",
        "payload": {"a": 1},
    }
    assert parse_frame(json.dumps(raw).encode()) == SocketEnvelope(
        "e", "slash_commands", {"a": 1}, accepts_response_payload=True, is_retry=True
    )


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"null", b"[1]", b"{}", b'{"type":"x"}', b'{"type":"x","envelope_id":"e","payload":[]}'],
)
def test_garbage_is_no_frame(raw: bytes) -> None:
    assert parse_frame(raw) is None


@pytest.mark.parametrize(
    ("broken", "read"),
    [
        (b'"gr\xfc\xdfe"', "gr\ufffd\ufffde"),
        (b'"\\ud83d half a pair"', "\ud83d half a pair"),
        (b"1e400", float("inf")),
    ],
)
def test_what_a_strict_reader_refuses_does_not_cost_the_event(broken: bytes, read: object) -> None:
    raw = b'{"envelope_id": "e", "type": "events_api", "payload": {"text": %b}}' % broken
    assert parse_frame(raw) == SocketEnvelope("e", "events_api", {"text": read})


def test_an_endless_nesting_is_no_frame() -> None:
    assert parse_frame(b"[" * 100_000) is None


@pytest.mark.parametrize(
    ("call", "status", "body", "kind"),
    [
        (WRITE, 429, {}, ChatRateLimitedError),
        (READ, 200, {"ok": False, "error": "ratelimited"}, ChatRateLimitedError),
        (WRITE, 200, {"ok": False, "error": "invalid_auth"}, ChatAuthError),
        (READ, 200, {"ok": False, "error": "token_revoked"}, ChatAuthError),
        (WRITE, 200, {"ok": False, "error": "internal_error"}, ChatOutcomeUnknownError),
        (READ, 200, {"ok": False, "error": "fatal_error"}, ChatUnreachableError),
        (WRITE, 503, "<html>", ChatOutcomeUnknownError),
        (READ, 503, "<html>", ChatUnreachableError),
        (WRITE, 200, "<html>", ChatOutcomeUnknownError),
        (WRITE, 200, {"ok": False, "error": "is_archived"}, ChatError),
        (WRITE, 200, {"ok": False, "error": "missing_scope", "needed": "files:write"}, ChatError),
    ],
)
def test_every_answer_is_one_of_our_errors(
    call: ApiCall, status: int, body: object, kind: type[ChatError]
) -> None:
    assert type(refusal(call, status, {}, body)) is kind


def test_a_refusal_says_what_is_missing() -> None:
    error = refusal(WRITE, 200, {}, {"ok": False, "error": "missing_scope", "needed": "files:write"})
    assert error.code == "missing_scope"
    assert "files:write" in str(error)


@pytest.mark.parametrize(
    ("header", "seconds"), [("12", 12), (None, 30), ("soon", 30), ("-1", 30), ("nan", 30), ("1e9", 900)]
)
def test_retry_after(header: str | None, seconds: float) -> None:
    assert retry_after_s(header) == seconds


@pytest.mark.parametrize("token", ["", "  ", "xapp-1-A", "xoxb 1", "xoxb-1\nX-Evil: 1", "xoxb-é"])
def test_no_bot_token(token: str) -> None:
    with pytest.raises(ChatAuthError):
        check_bot_token(token)


@pytest.mark.parametrize("token", ["", "xoxb-1", "xoxp-1", "xoxe.xoxb-1"])
def test_no_app_token(token: str) -> None:
    with pytest.raises(ChatAuthError) as caught:
        check_app_token(token)
    assert "\n" not in str(caught.value)


def test_tokens_are_stripped_and_foreign_ones_pass() -> None:
    assert check_bot_token(" xoxb-1\n") == "xoxb-1"
    assert check_app_token("local-app-token") == "local-app-token"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/api/", "ws://localhost:2/x", "http://[::1]:3/"])
def test_this_machine_needs_no_proxy(url: str) -> None:
    assert is_local_url(url)
    assert proxy_for(url) is None


def test_other_hosts_are_not_this_machine() -> None:
    assert not is_local_url("wss://wss.slack.com/link")
    assert not is_local_url("http://127.0.0.1.example.com/")


def test_waits_grow_to_the_cap_and_are_spread() -> None:
    rng = Random(1)
    assert full_jitter_s(rng, 0, 1, 60) == 0
    many = [full_jitter_s(rng, 3, 1, 60) for _ in range(500)]
    assert 0 <= min(many) < 0.2
    assert 3.8 < max(many) <= 4
    assert max(full_jitter_s(rng, 10_000, 1, 60) for _ in range(500)) <= 60

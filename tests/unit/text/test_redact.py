"""Secrets out of text."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from codebutler.text.disguised import PIECE_CHARS, first_match
from codebutler.text.redact import REDACTED, Redactor

SECRET = 'p@ss/w"ord+&1é!'
DIGITS = "a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6q7r8s9t0"


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        quote(SECRET, safe=""),
        json.dumps(SECRET)[1:-1],
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        SECRET.encode().hex(),
        SECRET.replace("&", "&amp;"),
    ],
)
def test_a_held_value_goes_in_every_spelling(shown: str) -> None:
    assert Redactor([SECRET]).redact(f"before {shown} after") == f"before {REDACTED} after"


@pytest.mark.parametrize("before", ["", "x", "xy", "user:", "Authorization: "])
def test_a_held_value_goes_from_within_base64(before: str) -> None:
    secret = "hunter2-hunter2-hunter2"
    shown = base64.b64encode(f"{before}{secret} tail".encode()).decode()
    redacted = Redactor([secret]).redact(shown)
    assert REDACTED in redacted
    # Only characters that also hold bits of a neighbour may stay.
    assert len(redacted.replace(REDACTED, "")) <= len(shown) - len(secret) * 8 // 6 + 2


def test_short_values_are_ignored() -> None:
    assert Redactor(["abc", "", "1234567"]).redact("abc 1234567") == "abc 1234567"


def test_the_longer_of_two_values_wins() -> None:
    assert Redactor(["password", "password-extended"]).redact("password-extended") == REDACTED


@pytest.mark.parametrize(
    "token",
    [
        "xoxb-1234567890-abcdefghij", "xoxp-1-2-3-abcdef", "xoxe.xoxb-1-abcdefghij", "xoxe-1-abcdefghij",
        "xapp-1-A0123-456-abcdef", f"ghp_{DIGITS}", f"gho_{DIGITS}", f"ghs_{DIGITS}", f"github_pat_{DIGITS}",
        f"sk-ant-api03-{DIGITS}", f"sk-proj-{DIGITS}", f"sk-{DIGITS}", "AKIAIOSFODNN7EXAMPLE",
        "AIza" + "a1b2c" * 7, f"npm_{DIGITS}", f"pypi-{DIGITS}{DIGITS}", f"glpat-{DIGITS}", f"hf_{DIGITS}",
        f"SG.{DIGITS}.{DIGITS}", f"sk_live_{DIGITS}", f"rk_live_{DIGITS}", f"gsk_{DIGITS}", f"tvly-{DIGITS}",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ],
)  # fmt: skip
def test_tokens_are_known_by_their_shape(token: str) -> None:
    redacted = Redactor().redact(f'key="{token}", next')
    assert redacted == f'key="{REDACTED}", next'


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (
            "wss://wss.example/link?ticket=12345678-ab&app_id=1",
            f"wss://wss.example/link?ticket={REDACTED}&app_id=1",
        ),
        ("https://bob:hunter2@host.example/x", f"https://bob:{REDACTED}@host.example/x"),
        (f"Authorization: Bearer {DIGITS}", f"Authorization: Bearer {REDACTED}"),
        (
            "https://hooks.slack.com/services/T000/B000/abcdefgh",
            f"https://hooks.slack.com/services/{REDACTED}",
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\ndefghijklm\n-----END RSA PRIVATE KEY-----\n.",
            f"-----BEGIN RSA PRIVATE KEY-----{REDACTED}-----END RSA PRIVATE KEY-----\n.",
        ),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA cut",
            f"-----BEGIN OPENSSH PRIVATE KEY-----{REDACTED}",
        ),
    ],
)
def test_only_the_secret_part_goes(text: str, redacted: str) -> None:
    assert Redactor().redact(text) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "hello world",
        "the bearer of this message",
        "task-ordering-of-many-things",
        "sk-toggleable-content-label",
        "https://example.com/a?b=c",
        "2026-11-20 10:20:30",
        "git@github.com:org/repo.git",
        "0123456789abcdef" * 3,
        "http://localhost:8080/@user",
        "-----BEGIN PUBLIC KEY-----\nabcdefghijklmnopqrst\n-----END PUBLIC KEY-----",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor().redact(text) == text


@given(st.text(max_size=200), st.text(min_size=8, max_size=40))
def test_the_value_is_gone_and_twice_is_once(text: str, secret: str) -> None:
    redactor = Redactor([secret])
    once = redactor.redact(f"{text}{secret}{text}")
    assert secret not in once or secret in REDACTED * 3
    assert redactor.redact(once) == once or secret in REDACTED * 3


@pytest.mark.parametrize(
    "hostile",
    [
        "?token=",
        "a://",
        "-----BEGIN PRIVATE KEY-----",
        "xox",
        "eyJaaaaaaaaaa.",
        "-eyJ",
        "eyJaaaaaaaa.-eyJ",
        "sk-",
        "bearer ",
        "https://a:",
        "a" * 7,
    ],
)
def test_a_megabyte_takes_little_time(hostile: str) -> None:
    text = hostile * (1_000_000 // len(hostile))
    redactor = Redactor([f"value-number-{number}" for number in range(20)])
    started_s = time.thread_time()
    redactor.redact(text)
    assert time.thread_time() - started_s < 5


def test_what_is_learned_later_goes_too() -> None:
    redactor = Redactor(["first-value"])
    redactor.learn(["second-value", "short"])
    assert redactor.redact("first-value second-value short") == "[redacted] [redacted] short"


PIECES = [
    "\n", " ", "\t", "\u00a0", "text", "é", "\U0001f600", "\ud800", "Bearer", "basic ", SECRET, "sk-", DIGITS,
    "xoxb-1-", "task-force", "https://", "user:pa55w0rd@host", "?token=", "-----BEGIN RSA PRIVATE KEY-----",
    "-----END RSA PRIVATE KEY-----", "eyJhbGciOiJI.", "hf_", ":AA", "12345678", "two\nlines-of-a-secret",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_looking_only_where_a_secret_may_be_misses_none(text: str) -> None:
    secrets = [SECRET, "two\nlines-of-a-secret"]
    assert Redactor(secrets, long_chars=0).redact(text) == Redactor(secrets).redact(text)


def test_many_places_in_a_long_text_are_looked_at_once_each() -> None:
    line = f"a line with sk-{DIGITS} in it\n"
    assert Redactor().redact(line * 20_000) == f"a line with {REDACTED} in it\n" * 20_000


def test_what_lies_across_two_pieces_of_a_long_text_is_found() -> None:
    needle = b"needle"
    pattern = re2.compile(needle)
    for end in (PIECE_CHARS, PIECE_CHARS + len(needle), 2 * PIECE_CHARS + len(needle)):
        for before in range(end - len(needle) - 1, end + 1):
            hit = first_match(pattern, b"x" * before + needle + b"y" * PIECE_CHARS, 0, len(needle))
            assert hit is not None
            assert hit.start() == before
    assert first_match(pattern, b"x" * (3 * PIECE_CHARS), 0, len(needle)) is None


def test_a_long_password_in_an_address_goes_wherever_it_lies() -> None:
    password = "p" * 490 + "1"
    for before in range(PIECE_CHARS - 600, PIECE_CHARS + 4_600, 400):
        text = "x" * before + f"\nhttps://user:{password}@host\n" + "y" * PIECE_CHARS
        assert password not in Redactor([]).redact(text)

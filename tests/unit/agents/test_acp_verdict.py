"""How a turn over the Agent Client Protocol ended: by the agent's word, its record, and the clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler_worker.agents.acp.agent import AUTH_REQUIRED, TurnRecord, judge_error
from codebutler_worker.agents.acp.kimi import account_of

WIRE = Path(__file__).parents[2] / "golden" / "kimi" / "wire.jsonl"
TITLE, LOGIN = "Kimi Code", "log in."


@pytest.mark.parametrize(
    ("code", "said", "reason"),
    [
        (AUTH_REQUIRED, "Authentication required", "auth"),
        (-32603, "401 invalid key", "auth"),
        (-32603, "402 insufficient balance", "limit"),
        (-32603, "You have exceeded your quota", "limit"),
        (-32603, "429 slow down", "overloaded"),
        (-32603, "529 Overloaded", "overloaded"),
        (-32603, "500 boom (provider.api_error)", "overloaded"),
        (-32603, "Connection error. (provider.connection_error)", "overloaded"),
        (-32603, "400 the prompt has 1500 words", "failed"),
        (-32603, "", "failed"),
    ],
)
def test_an_error_has_a_reason(code: int, said: str, reason: str) -> None:
    verdict = judge_error(code, said, TITLE, LOGIN)
    assert verdict.reason == reason
    assert "\n" not in verdict.text
    assert verdict.text


def turns() -> list[bytes]:
    """The record, cut into its turns."""
    cut: list[bytes] = []
    for line in WIRE.read_bytes().splitlines(keepends=True):
        if b'"turn.prompt"' in line:
            cut.append(b"")
        cut[-1] += line
    return cut


def test_the_record_owns_up_to_failures() -> None:
    found = [account_of(each, TITLE, LOGIN) for each in turns()]
    reasons = [each.failure.reason if each.failure else "done" for each in found]
    assert reasons == ["overloaded", "overloaded", "limit", "failed", "auth", "failed", "done", "done"]
    assert found[0].failure is not None
    assert "500 boom" in found[0].failure.text


def test_the_record_says_what_was_used() -> None:
    last = account_of(turns()[-1], TITLE, LOGIN)
    assert last.ended == 1
    assert account_of(turns()[-1].split(b'{"type":"turn.ended"')[0], TITLE, LOGIN).ended == 0
    assert (last.input_tokens, last.output_tokens, last.turns) == (400, 80, 4)


def test_a_record_of_nonsense_is_no_failure() -> None:
    lines = [
        b'{"type": "usage.record", "usage": 7}',
        b'{"type":"turn.ended"',
        b"[" * 9999 + b'"turn.ended"',
        b"\xff",
    ]
    assert account_of(b"\n".join(lines), TITLE, LOGIN) == TurnRecord()


@pytest.mark.parametrize("half", [b"\\ud83d", b"\xf0\x9f"])
def test_half_a_character_does_not_hide_a_failure(half: bytes) -> None:
    line = b'{"type":"turn.ended","reason":"failed","error":{"message":"x' + half + b'","code":"c"}}'
    failure = account_of(line, TITLE, LOGIN).failure
    assert failure is not None
    assert failure.text.endswith("x\ufffd (c)")

"""What is tried again and again costs two lines an hour."""

from __future__ import annotations

from codebutler.observe.audit import COUNTED_S, MOST, Repeats
from codebutler.observe.chain import AuditAct


def act(text: str = "hm", **changes: str) -> AuditAct:
    fields = {"kind": "prompt", "user": "U1", "channel": "C1", "decision": "refused: no"} | changes
    return AuditAct(text=text, **fields)  # type: ignore[arg-type]  # texts only


def test_the_first_is_told_and_the_rest_of_its_hour_is_a_number() -> None:
    counted = Repeats()
    assert counted.is_first(act("1"), 0)
    assert not any(counted.is_first(act(str(number)), number) for number in range(2, 50))
    assert counted.over(COUNTED_S - 1) == []
    (line,) = counted.over(COUNTED_S)
    assert (line.text, line.decision) == ("49", "refused: no (48 more within the hour; this is the last)")
    assert counted.over(9 * COUNTED_S) == []
    assert counted.is_first(act("50"), COUNTED_S)


def test_who_tries_once_is_one_line() -> None:
    counted = Repeats()
    assert counted.is_first(act(), 0)
    assert counted.over(COUNTED_S) == []


def test_another_person_place_or_way_is_counted_by_itself() -> None:
    counted = Repeats()
    others = [act(), act(user="U2"), act(channel="C2"), act(kind="button codebutler.allow")]
    assert all(counted.is_first(each, 0) for each in others)
    assert not counted.is_first(act(kind="prompt claude"), 0)


def test_memory_is_bounded_whoever_comes() -> None:
    counted = Repeats()
    for number in range(MOST):
        assert counted.over(0) == []
        assert counted.is_first(act(user=f"U{number}"), 0)
        assert not counted.is_first(act(user=f"U{number}"), 0)
    assert len(counted.over(0)) == MOST
    assert counted.over(0) == []

"""Full audit files are deleted when they are old, and the chain is still verified from its beginning."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from codebutler.observe.audit import EXPIRE_S, AuditLog, maintain
from codebutler.observe.chain import AuditAct, Break, rotated, verify
from codebutler.platform.tasks import beside
from tests.clock import ManualClock

DAY_S = 86400.0


def act(text: str, *, kind: str = "run", decision: str = "allowed") -> AuditAct:
    return AuditAct(kind=kind, user="U01", channel="C01", text=text, decision=decision)


def written(path: Path, clock: ManualClock, *texts: str) -> None:
    """Each line in a file of its own."""
    with AuditLog(path, clock, str, rotate_bytes=1) as audit:
        for text in texts:
            audit.append(act(text))


def expire(path: Path, clock: ManualClock) -> None:
    with AuditLog(path, clock, str) as audit:
        audit.expire()


def names(path: Path) -> list[str]:
    return [file.name for file in rotated(path)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def path(tmp_path: Path, clock: ManualClock) -> Path:
    """Two files from today, one from three weeks later, and a month has passed since today."""
    path = tmp_path / "audit.jsonl"
    written(path, clock, "a", "b")
    await clock.advance(21 * DAY_S)
    written(path, clock, "c")
    await clock.advance(10 * DAY_S)
    return path


def test_old_files_go_and_the_chain_is_whole(path: Path, clock: ManualClock) -> None:
    expire(path, clock)
    assert names(path) == ["audit.000003.jsonl"]
    decisions = [json.loads(line)["decision"] for line in path.read_text().splitlines()]
    assert decisions == ["expired", "expired"]
    assert verify(path) is None


async def test_what_is_left_of_a_log_expires_again_and_again(path: Path, clock: ManualClock) -> None:
    for _ in range(3):
        expire(path, clock)
        await clock.advance(31 * DAY_S)
        written(path, clock, "d")
        assert verify(path) is None
    expire(path, clock)
    assert names(path) == ["audit.000006.jsonl"]
    assert verify(path) is None


def test_a_death_between_two_deletions_is_no_break(path: Path, clock: ManualClock) -> None:
    first, second = (file.read_bytes() for file in rotated(path)[:2])
    expire(path, clock)
    path.with_suffix(".000002.jsonl").write_bytes(second)
    assert verify(path) is None
    path.with_suffix(".000001.jsonl").write_bytes(first)
    assert verify(path) is None
    expire(path, clock)
    assert names(path) == ["audit.000003.jsonl"]
    assert verify(path) is None


def test_what_somebody_else_deletes_is_found(path: Path, clock: ManualClock) -> None:
    expire(path, clock)
    rotated(path)[0].unlink()
    assert verify(path) == Break(path, 1)


def test_the_first_file_may_not_just_be_missing(path: Path) -> None:
    rotated(path)[0].unlink()
    assert verify(path) == Break(path.with_suffix(".000002.jsonl"), 1)


def test_only_the_log_itself_says_that_a_file_expired(path: Path, clock: ManualClock) -> None:
    """A text that somebody wrote proves nothing."""
    first, second = rotated(path)[:2]
    digest = json.loads(second.read_text())["prev"]
    with AuditLog(path, clock, str) as audit:
        audit.append(act(f"audit.000001.jsonl expired; its last line was {digest}", decision="expired"))
        audit.append(act(f"audit.000001.jsonl expired; its last line was {digest}", kind="audit"))
    first.unlink()
    assert verify(path) == Break(second, 1)


def test_a_file_that_cannot_be_read_is_kept_as_evidence(path: Path, clock: ManualClock) -> None:
    rotated(path)[0].write_bytes(b"not a line\n")
    expire(path, clock)
    assert len(names(path)) == 3


async def test_it_happens_at_the_start_and_every_day(path: Path, clock: ManualClock) -> None:
    with AuditLog(path, clock, str) as audit:
        async with beside(maintain(audit, clock), name="flush"):
            async with asyncio.timeout(10):
                while len(names(path)) > 1:
                    await asyncio.to_thread(path.stat)
                while names(path):
                    await clock.advance(EXPIRE_S)
                    await asyncio.to_thread(path.stat)
    assert verify(path) is None

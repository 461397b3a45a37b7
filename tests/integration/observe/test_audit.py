from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codebutler.observe.audit import FLUSH_S, HELD_CHARS, AuditLog, maintain
from codebutler.observe.chain import AuditAct, Break, rotated, verify
from codebutler.platform.tasks import beside
from tests.clock import ManualClock


def act(text: str = "ls") -> AuditAct:
    return AuditAct(
        kind="run", user="U01", channel="C01", thread="1.0", text=text, decision="allowed", exit_code=0
    )


def hide(text: str) -> str:
    return text.replace("xoxb-1", "[redacted]")


def write(path: Path, *texts: str) -> None:
    with AuditLog(path, ManualClock(), hide) as audit:
        for text in texts:
            audit.append(act(text))


def test_a_line_holds_the_contracts_fields_and_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "audit.jsonl"
    write(path, "echo xoxb-1\n\ud800")
    line = json.loads(path.read_text())
    fields = "time user channel thread kind text decision exit_code duration_s prev"
    assert set(line) == set(fields.split())
    assert line["text"] == "echo [redacted]\n\\ud800"
    assert line["time"] == "2026-01-01T00:00:00.000+00:00"
    assert line["prev"] == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_each_line_is_bound_to_the_one_before_also_over_restarts(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, "a", "b")
    write(path)
    write(path, "c" * 3_000_000, "d")
    write(path, "e")
    lines = path.read_bytes().splitlines()
    assert [json.loads(line)["text"][:1] for line in lines] == ["a", "b", "c", "d", "e"]
    for before, line in itertools.pairwise(lines):
        assert json.loads(line)["prev"] == hashlib.sha256(before).hexdigest()
    assert verify(path) is None


@pytest.mark.parametrize(
    ("tamper", "broken"),
    [
        (lambda lines: [lines[0], lines[1].replace(b"rm", b"ls"), *lines[2:]], 3),
        (lambda lines: [lines[0], *lines[2:]], 2),
        (lambda lines: [lines[0], lines[0], *lines[1:]], 2),
        (lambda lines: lines[1:], 1),
        (lambda lines: [lines[0], b"not json", *lines[2:]], 2),
        (lambda lines: [lines[0], lines[2], lines[1], lines[3]], 2),
        (lambda lines: [*lines, b'{"torn'], 5),
    ],
)
def test_tampering_is_found_at_its_line(tmp_path: Path, tamper: object, broken: int) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, "ls", "rm -r x", "pwd", "id")
    assert callable(tamper)
    path.write_bytes(b"\n".join(tamper(path.read_bytes().splitlines())) + b"\n")
    assert verify(path) == Break(path, broken)


def test_a_line_torn_by_a_crash_stays_and_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, "a", "b")
    path.write_bytes(path.read_bytes()[:-20])
    assert verify(path) == Break(path, 2)
    write(path, "c")
    lines = path.read_bytes().splitlines()
    assert len(lines) == 4
    assert json.loads(lines[2])["decision"] == "torn"
    assert verify(path) is None


def test_threads_do_not_break_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, ManualClock(), hide) as audit:

        def append_many() -> None:
            for number in range(100):
                audit.append(act(str(number)))

        threads = [threading.Thread(target=append_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(path.read_bytes().splitlines()) == 400
    assert verify(path) is None


def test_a_symlink_is_refused(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"), AuditLog(tmp_path / "audit.jsonl", ManualClock(), hide):
        pass


def test_a_full_file_is_put_aside_and_the_chain_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for life in range(3):
        with AuditLog(path, ManualClock(), hide, rotate_bytes=1000) as audit:
            for number in range(5):
                audit.append(act(f"{life} {number}"))
    assert len(rotated(path)) >= 2
    files = [*rotated(path), path]
    texts = [json.loads(line)["text"] for file in files for line in file.read_text().splitlines()]
    assert texts == [f"{life} {number}" for life in range(3) for number in range(5)]
    assert verify(path) is None
    first = files[0]
    first.write_bytes(first.read_bytes().replace(b"0 1", b"0 9"))
    assert verify(path) == Break(first, 3)
    first.unlink()
    assert verify(path) == Break(files[1], 1)


def test_what_is_kept_together_is_a_chain_too(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, ManualClock(), hide) as audit:
        audit.keep([act("a"), act("b")])
        audit.keep([])
        audit.append(act("c"))
    assert len(path.read_bytes().splitlines()) == 3
    assert verify(path) is None


def keep(path: Path, *texts: str) -> None:
    with AuditLog(path, ManualClock(), hide) as audit:
        for text in texts:
            audit.keep([act(text)])


@pytest.mark.parametrize(
    ("tamper", "line"),
    [
        (lambda lines: lines[:-1], 3),
        (lambda lines: lines[:1], 1),
        (lambda lines: [*lines[:-1], lines[-1].replace(b"id", b"ls")], 4),
        (lambda lines: [], 0),
    ],
)
def test_an_end_that_was_taken_away_is_found_also_after_a_restart(
    tmp_path: Path, tamper: object, line: int
) -> None:
    path = tmp_path / "audit.jsonl"
    keep(path, "ls", "rm -r x", "pwd", "id")
    assert verify(path) is None
    assert callable(tamper)
    path.write_bytes(b"".join(raw + b"\n" for raw in tamper(path.read_bytes().splitlines())))
    assert verify(path) == Break(path, line, cut=True)
    keep(path, "and on")
    assert verify(path) == Break(path, line + 1, cut=True)
    notes = [json.loads(raw) for raw in path.read_bytes().splitlines()][line:]
    assert [(note["kind"], note["decision"]) for note in notes] == [("audit", "cut"), ("run", "allowed")]


def test_lines_that_need_not_be_on_the_disk_may_be_lost(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, ManualClock(), hide) as audit:
        audit.keep([act("make")])
        audit.append(act("make, done"))
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assert verify(path) is None
    keep(path, "and on")
    assert verify(path) is None


def test_a_log_from_before_there_was_a_head_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    keep(path, "ls", "pwd")
    (tmp_path / "audit.head").unlink()
    assert verify(path) is None
    keep(path, "id")
    assert stat.S_IMODE((tmp_path / "audit.head").stat().st_mode) == 0o600
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert verify(path) == Break(path, 2, cut=True)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_log_that_is_taken_away_under_us_goes_on_and_says_so(tmp_path: Path, *, replaced: bool) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, ManualClock(), hide) as audit:
        audit.keep([act("rm -r x")])
        path.rename(tmp_path / "hidden")
        if replaced:
            path.touch()
        audit.keep([act("ls")])
        audit.keep([act("pwd")])
    lines = [json.loads(raw) for raw in path.read_bytes().splitlines()]
    assert [line["text"] for line in lines[1:]] == ["ls", "pwd"]
    assert lines[0]["decision"] == "cut"
    assert verify(path) == Break(path, 1, cut=True)


def test_the_head_is_found_in_a_file_that_was_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, ManualClock(), hide, rotate_bytes=1) as audit:
        audit.keep([act("ls")])
    with AuditLog(path, ManualClock(), hide, rotate_bytes=1):
        pass
    assert len(rotated(path)) == 1
    assert verify(path) is None
    path.write_bytes(b"")
    assert verify(path) is None


@contextmanager
def limit(what: int, value: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))


@contextmanager
def no_room(path: Path) -> Iterator[None]:
    """No file grows beyond the size of this one."""
    with limit(resource.RLIMIT_FSIZE, path.stat().st_size):
        yield


def texts(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


def test_what_has_happened_is_held_while_nothing_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, ManualClock(), hide) as audit:
        audit.keep([act("begun")])
        with no_room(path):
            audit.append(act("ended"))
            audit.append(act("ended, too"))
            with pytest.raises(OSError, match="large"):
                audit.keep([act("may this begin?")])
            audit.flush()
        assert texts(path) == ["begun"]
        audit.append(act("after"))
    assert texts(path) == ["begun", "ended", "ended, too", "after"]
    assert verify(path) is None


async def test_a_held_line_says_when_it_happened_and_holds_no_secret(tmp_path: Path) -> None:
    path, clock = tmp_path / "audit.jsonl", ManualClock()
    with AuditLog(path, clock, hide) as audit:
        audit.append(act("begun"))
        before = clock.now().isoformat(timespec="milliseconds")
        with no_room(path):
            audit.append(act("echo xoxb-1"))
        await clock.advance(60)
    line = json.loads(path.read_text().splitlines()[1])
    assert (line["time"], line["text"]) == (before, "echo [redacted]")


def test_no_more_is_held_than_memory_has_room_for(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    large = act("x" * (HELD_CHARS // 4))
    with AuditLog(path, ManualClock(), hide) as audit:
        audit.append(act("begun"))
        with no_room(path):
            for _ in range(3):
                audit.append(large)
            with pytest.raises(OSError, match="large"):
                audit.append(large)
    assert len(texts(path)) == 4
    assert verify(path) is None


async def test_what_is_held_is_written_once_there_is_room(tmp_path: Path) -> None:
    path, clock = tmp_path / "audit.jsonl", ManualClock()
    with AuditLog(path, clock, hide) as audit:
        async with beside(maintain(audit, clock), name="flush"):
            audit.append(act("begun"))
            with no_room(path):
                audit.append(act("ended"))
            async with asyncio.timeout(10):
                while len(texts(path)) < 2:
                    await clock.advance(FLUSH_S)
                    await asyncio.to_thread(path.stat)


def test_a_full_file_that_cannot_be_put_aside_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, ManualClock(), hide, rotate_bytes=1) as audit:
        with limit(resource.RLIMIT_NOFILE, 3):
            audit.append(act("a"))
            audit.append(act("b"))
        assert rotated(path) == []
    assert texts(path) == ["a", "b"]
    assert verify(path) is None


async def test_a_strangers_flood_costs_two_lines_an_hour_and_the_chain_is_whole(tmp_path: Path) -> None:
    path, clock = tmp_path / "audit.jsonl", ManualClock()
    with AuditLog(path, clock, hide) as audit:
        for _ in range(500):
            audit.refuse(act("\0xoxb-1 " * 5000), counted=True)
        await clock.advance(3600)
        audit.flush()
        for _ in range(3):
            audit.refuse(act("again"), counted=True)
        audit.refuse(act("sudo reboot"), counted=False)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["text"][:6] for line in lines] == ["\0[reda", "\0[reda", "again", "sudo r", "again"]
    assert "499 more within the hour" in lines[1]["decision"]
    assert path.stat().st_size < 8000
    assert "xoxb" not in path.read_text()
    assert verify(path) is None

"""A session's log holds every byte, is private, ends with a line of ours, and goes when it is old."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from codebutler_worker.agents.backend import Finished
from codebutler_worker.agents.session_logs import SESSIONS, SessionLogs, session_of
from codebutler_worker.store.opening import prepare_state_dir

NOW = datetime(2026, 2, 14, 15, 4, 5, tzinfo=UTC)
TURN = "0123456789abcdef"
DAY_S = 86_400


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    prepare_state_dir(tmp_path)
    return tmp_path


def test_every_byte_is_kept_and_a_last_line_closes_it(repo: Path) -> None:
    logs = SessionLogs(repo, 30)
    log = logs.open(TURN, NOW)
    log.write(b"\x1b[31mred\x00\xff\r\n")
    log.finished = Finished(True, "", "done", exit_code=0)
    log.close(1.5, NOW)
    file = repo / SESSIONS / "01234567.log"
    assert file.read_bytes() == (
        b"\x1b[31mred\x00\xff\r\n\n--- session 01234567 ended 2026-02-14T15:04:05+00:00 "
        b"status=done exit_code=0 duration_s=1.500 bytes=12 ---\n"
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert logs.size_of(session_of(TURN)) == file.stat().st_size
    assert logs.output("01234567", 200) == b"\x1b[31mred\x00\xff\r\n"


def test_a_turn_that_goes_on_goes_on_in_its_log(repo: Path) -> None:
    logs = SessionLogs(repo, 30)
    for part in (b"first ", b"second "):
        log = logs.open(TURN, NOW)
        log.write(part)
        log.close(0, NOW)
        log.close(0, NOW)
    assert (repo / SESSIONS / "01234567.log").read_bytes().count(b"ended") == 2


def test_a_flood_fills_no_disk_and_the_last_line_stays(repo: Path) -> None:
    logs = SessionLogs(repo, 30, limit_bytes=1000)
    log = logs.open(TURN, NOW)
    for _ in range(100):
        log.write(b"x" * 300)
    assert log.failed.endswith("GB (sandbox.fileSizeGb)")
    log.close(1.5, NOW)
    kept = (repo / SESSIONS / "01234567.log").read_bytes()
    assert kept.startswith(b"x" * 900 + b"\n--- session 01234567 ended")
    assert kept.endswith(b" bytes=900 ---\n")


def test_old_logs_go(repo: Path) -> None:
    logs = SessionLogs(repo, 2)
    logs.open("old-one-", NOW).close(0, NOW)
    logs.open("new-one-", NOW).close(0, NOW)
    old = repo / SESSIONS / "old-one-.log"
    os.utime(old, (NOW.timestamp() - 3 * DAY_S,) * 2)
    os.utime(repo / SESSIONS / "new-one-.log", (NOW.timestamp() - DAY_S,) * 2)
    SessionLogs(repo, 2).open(TURN, NOW).close(0, NOW)
    assert {file.name for file in (repo / SESSIONS).iterdir()} == {"01234567.log", "new-one-.log"}


def test_a_link_in_the_way_is_not_followed(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (repo / ".codebutler" / "logs").mkdir()
    (repo / SESSIONS).symlink_to(elsewhere)
    log = SessionLogs(repo, 30).open(TURN, NOW)
    assert log.failed
    log.write(b"lost")
    log.close(0, NOW)
    assert list(elsewhere.iterdir()) == []


def test_a_linked_log_is_neither_written_nor_read(
    repo: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("elsewhere") / "secret"
    secret.write_text("secret")
    logs = SessionLogs(repo, 30)
    logs.open("other-on", NOW).close(0, NOW)
    (repo / SESSIONS / "01234567.log").symlink_to(secret)
    assert logs.open(TURN, NOW).failed
    with pytest.raises(OSError, match="symbolic link"):
        logs.output("01234567", 100)
    assert secret.read_text() == "secret"


@pytest.mark.parametrize("name", ["../config", "", "a/b", ".", "x" * 40, "a b"])
def test_only_names_of_sessions_are_read(repo: Path, name: str) -> None:
    logs = SessionLogs(repo, 30)
    assert logs.size_of(name) is None
    with pytest.raises(FileNotFoundError):
        logs.output(name, 100)


def test_a_full_disk_costs_the_record_and_not_the_work(repo: Path) -> None:
    log = SessionLogs(repo, 30).open(TURN, NOW)
    full = os.open("/dev/full", os.O_WRONLY)
    log._descriptor, real = full, log._descriptor  # full, without filling one
    assert real is not None
    os.close(real)
    log.write(b"x")
    log.write(b"y")
    assert log.failed == "No space left on device"
    log.close(0, NOW)

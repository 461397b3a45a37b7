from __future__ import annotations

import asyncio
import io
import logging
import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path

import pytest

from codebutler.observe.logs import BackgroundHandler, Logs, private_file
from tests.clock import settle

LOGGER = logging.getLogger("codebutler.test")


def hide(text: str) -> str:
    return text.replace("xoxb-1", "[redacted]")


def test_a_line_reaches_the_file_the_terminal_and_the_ring(tmp_path: Path) -> None:
    path, terminal = tmp_path / "logs" / "codebutler.log", io.StringIO()
    with Logs(path, "info", hide, stream=terminal) as logs:
        LOGGER.info("token %s", "xoxb-1")
        LOGGER.debug("unheard")
        logs.record("shop", "MSG", "U01: hello\nworld")
        ring = [(line.tag, line.repo, line.text) for line in logs.ring.recent()]
    expected = [("INF", "", "token [redacted]"), ("MSG", "shop", "U01: hello\\nworld")]
    assert ring == expected
    lines = path.read_text().splitlines()
    assert [line[20:] for line in lines] == ["INF  token [redacted]", "MSG  [shop] U01: hello\\nworld"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", lines[0][:19])
    assert terminal.getvalue().splitlines() == lines
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_every_line_is_written_in_order_before_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "codebutler.log"
    with Logs(path, "info", hide, stream=None):
        for number in range(5000):
            LOGGER.info("%d", number)
    assert [line[25:] for line in path.read_text().splitlines()] == [str(number) for number in range(5000)]


def test_warnings_of_other_libraries_are_kept_and_their_chatter_is_not(tmp_path: Path) -> None:
    path = tmp_path / "codebutler.log"
    with Logs(path, "debug", hide, stream=None):
        logging.getLogger("some.library").info("chatter")
        logging.getLogger("some.library").warning("careful")
        LOGGER.debug("detail")
    assert [line[20:] for line in path.read_text().splitlines()] == ["WRN  careful", "DBG  detail"]


def test_leaving_restores_what_was(tmp_path: Path) -> None:
    root, before = logging.getLogger(), list(logging.getLogger().handlers)
    level = root.level
    with Logs(tmp_path / "codebutler.log", "debug", hide, stream=None):
        assert len(root.handlers) == len(before) + 2
    assert root.handlers == before
    assert root.level == level


def test_a_stuck_terminal_holds_nobody_up(tmp_path: Path) -> None:
    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            released.wait()
            return super().write(text)

    import threading

    released = threading.Event()
    terminal = Stuck()
    with Logs(tmp_path / "codebutler.log", "info", hide, stream=terminal):
        for _ in range(1000):
            LOGGER.info("x")
        assert terminal.getvalue() == ""
        released.set()
    assert len(terminal.getvalue().splitlines()) == 1000


def test_the_file_rotates_by_size_and_its_parts_stay_private(tmp_path: Path) -> None:
    path = tmp_path / "codebutler.log"
    handler = BackgroundHandler("log", private_file(path, 1000, 2))
    for number in range(200):
        handler.handler.handle(logging.makeLogRecord({"msg": f"{number:04}" + "x" * 50}))
    handler.close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        path.name,
        f"{path.name}.1",
        f"{path.name}.2",
    ]
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in tmp_path.iterdir()} == {0o600}
    assert path.read_text().splitlines()[-1].startswith("0199")


def test_a_log_that_is_a_symlink_is_refused(tmp_path: Path) -> None:
    (tmp_path / "codebutler.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError), Logs(tmp_path / "codebutler.log", "info", hide, stream=None):  # noqa: PT011
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_old_rotated_files_are_forgotten(tmp_path: Path) -> None:
    old, young = tmp_path / "codebutler.log.2", tmp_path / "codebutler.log.1"
    for path in (old, young):
        path.touch()
    os.utime(old, (0, time.time() - 31 * 86400))
    with Logs(tmp_path / "codebutler.log", "info", hide, stream=None):
        pass
    assert not old.exists()
    assert young.exists()


async def test_a_follower_hears_what_comes_from_any_thread_and_loses_the_oldest() -> None:
    with Logs(None, "info", hide, stream=None) as logs, logs.ring.follow() as follower:
        await asyncio.to_thread(LOGGER.info, "from a thread")
        await settle()
        assert [line.text for line in follower.take()] == ["from a thread"]
        for number in range(600):
            LOGGER.info("%d", number)
        await settle()
        assert (follower.take()[0].text, follower.lost) == ("100", 100)


def test_the_ring_gives_the_newest_of_one_repository() -> None:
    with Logs(None, "info", hide, stream=None) as logs:
        for number in range(5):
            logs.record("a", "INF", f"a{number}")
            logs.record("b", "INF", f"b{number}")
        assert [line.text for line in logs.ring.recent(2, "a")] == ["a3", "a4"]
        assert logs.ring.recent(0) == []


def test_a_flood_drives_out_its_own_lines_only(tmp_path: Path) -> None:
    with Logs(tmp_path / "x.log", "info", str, stream=None) as logs:
        logs.record("calm", "INF", "what happened before")
        for number in range(3000):
            logs.record("loud", "INF", str(number))
        logs.record("calm", "INF", "and after")
        everything = logs.ring.recent()
        assert [line.text for line in logs.ring.recent(repo="calm")] == ["what happened before", "and after"]
        assert [line.text for line in everything[-2:]] == ["2999", "and after"]
        assert len(everything) == 2000


def test_a_disk_that_takes_no_line_is_one_line_until_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    handler = private_file(Path("/dev/full"), 10**6, 1)
    full, healed = handler.stream, io.StringIO()
    assert full is not None

    def write(text: str) -> None:
        handler.emit(logging.LogRecord("codebutler", logging.INFO, "", 0, text, None, None))

    try:
        for _ in range(2):
            handler.stream = full
            write("a secret")
            write("another")
            told = "codebutler: /dev/full cannot be written: No space left on device\n"
            assert capsys.readouterr().err == told
            handler.stream = healed  # type: ignore[assignment]  # any stream of text does
            write("again")
        assert healed.getvalue() == "again\n" * 2
    finally:
        handler.close()
        with suppress(OSError):
            full.close()

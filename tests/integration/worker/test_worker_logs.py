"""`!logs`: the newest session's file, a named one, its last lines, today's list; redacted and in parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from codebutler.domain.model import Command, Post, Upload
from codebutler_worker.agents.backend import Finished, Started
from codebutler_worker.agents.session_logs import ENDING, SESSIONS, session_of
from codebutler_worker.commands import logs
from tests.events import posted
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker


async def ran(parent: Parent, repo: Path, ts: str, content: bytes) -> str:
    """A turn that left a log; returns its session."""
    before = len(parent.backend.runs)
    parent.says("do it", ts)
    run = await parent.run(before)
    session = session_of(run.request.turn_id)
    directory = repo / SESSIONS
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{session}.log").write_bytes(content)
    run.does(Started(session), Finished(True, "Done.", "done"))
    await parent.until(lambda: parent.reactions(ts) == ["white_check_mark"])
    return session


async def ask(parent: Parent, argument: str, ts: str, thread_ts: str | None = None) -> list[object]:
    """Say ``!logs ARGUMENT``; what the bot does then."""
    before = len(parent.operations)
    text = f"!logs {argument}".strip()
    event = posted(channel=CHANNEL, ref=ts, user=USER, text=text, thread=thread_ts)
    parent.deliver(event, Command(name="logs", argument=argument))
    await parent.until(lambda: len(parent.operations) > before)
    await parent.until(parent.is_idle, flow=True)
    return parent.operations[before:]


def texts(operations: list[object]) -> str:
    return "\n".join(text_of(operation) for operation in operations if isinstance(operation, Post))


def uploads(operations: list[object]) -> list[Upload]:
    return [operation for operation in operations if isinstance(operation, Upload)]


async def test_the_newest_sessions_log_comes_as_a_file(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await ran(parent, tmp_path, "100.1", b"old")
        session = await ran(parent, tmp_path, "200.1", b"\x1b[31mraw\x00\xff bytes\r\n")
        said = await ask(parent, "", "300.1")
        (file,) = uploads(said)
        assert (file.filename, file.content) == (f"{session}.log", b"\x1b[31mraw\x00\xff bytes\r\n")
        assert file.thread == "300.1"
        assert texts(said).startswith(f"📎 `{session}`, ")
        assert "everything that this run's program printed" in texts(said)


async def test_in_a_thread_it_is_that_threads_and_a_name_is_any(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        first = await ran(parent, tmp_path, "100.1", b"first")
        await ran(parent, tmp_path, "200.1", b"second")
        assert uploads(await ask(parent, "", "300.1", "100.1"))[0].content == b"first"
        assert uploads(await ask(parent, first, "300.2"))[0].content == b"first"
        assert "There is no log of a session `nonesuch`" in texts(await ask(parent, "nonesuch", "300.3"))


@pytest.mark.parametrize("newline", [b"\r\n", b"\n"])
async def test_the_last_lines_are_shown_as_a_terminal_shows_them(tmp_path: Path, newline: bytes) -> None:
    async with worker(settings(tmp_path)) as parent:
        lines = b"".join(b"line %d" % number + newline for number in range(200))
        await ran(parent, tmp_path, "100.1", lines + b"\x1b[32m 10%\r100%\x1b[0m" + newline)
        assert texts(await ask(parent, "tail 3", "300.1")) == "```\nline 198\nline 199\n100%\n```"
        assert texts(await ask(parent, "tail", "300.2")).startswith("```\nline 181\n")


async def test_our_own_last_line_is_none_of_them_and_long_lines_count_once(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        ended = ENDING.format(
            session="abcd1234", moment="2026-01-01T00:00:00+00:00", outcome="status=done"
        ).encode()
        await ran(parent, tmp_path, "100.1", b"one\r\ntwo\r\nthree\r\n" + ended)
        assert texts(await ask(parent, "tail 2", "300.1")) == "```\ntwo\nthree\n```"
        lines = [f"<{number}>{'x' * 1_000}" for number in range(300)]
        await ran(parent, tmp_path, "200.1", "\r\n".join(lines).encode() + ended)
        told = texts(await ask(parent, "tail 12", "300.2"))
        assert [number for number in range(300) if f"&lt;{number}&gt;" in told] == [*range(288, 300)]


async def test_a_session_without_output_does_not_hide_the_last_lines(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        ended = ENDING.format(session="abcd1234", moment="2026-01-01T00:00:00+00:00", outcome="status=done")
        silent = await ran(parent, tmp_path, "100.1", ended.encode())
        assert texts(await ask(parent, "tail 5", "300.1")) == logs.NO_OUTPUT
        await ran(parent, tmp_path, "200.1", b"one\r\n")
        assert silent != await ran(parent, tmp_path, "250.1", ended.encode())
        assert texts(await ask(parent, "tail 5", "300.2")) == "```\none\n```"


async def test_the_list_names_todays_sessions_with_state_and_duration(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        assert texts(await ask(parent, "list", "50.1")) == logs.NONE_LISTED
        old = await ran(parent, tmp_path, "100.1", b"x")
        await parent.clock.advance(25 * 3600)
        session = await ran(parent, tmp_path, "200.1", b"x")
        told = texts(await ask(parent, "list", "300.1"))
        assert re.search(rf"`{session}` · done · \d+s · claude · do it", told)
        assert old not in told


async def test_of_a_long_list_the_newest_are_shown_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LISTED", 2)
    async with worker(settings(tmp_path)) as parent:
        sessions = [await ran(parent, tmp_path, f"{n}00.1", b"x") for n in (1, 2)]
        assert texts(await ask(parent, "list", "300.1")).startswith("Sessions of the last 24 hours:\n")
        sessions.append(await ran(parent, tmp_path, "400.1", b"x"))
        told = texts(await ask(parent, "list", "500.1"))
        assert told.startswith("Sessions of the last 24 hours, the newest 2:\n")
        assert [session in told for session in sessions] == [False, True, True]


async def test_what_is_sent_holds_no_secret_and_the_disk_keeps_it(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        secret = b"ghp_" + b"a" * 36
        session = await ran(parent, tmp_path, "100.1", b"token " + secret + b"\r\n")
        assert secret not in uploads(await ask(parent, "", "300.1"))[0].content
        assert "ghp_" not in texts(await ask(parent, "tail 5", "300.2"))
        assert secret in (tmp_path / SESSIONS / f"{session}.log").read_bytes()


async def test_without_any_log_it_says_so(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        assert logs.NO_LOG in texts(await ask(parent, "", "300.1"))

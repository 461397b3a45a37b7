"""`!logs` of a long log: whole, in numbered parts, one after the other; stopped, refused, and across a restart."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from codebutler.config.schema import RepoSettings
from codebutler.domain.model import Command, Post, Update, Upload
from codebutler.protocol.messages import Send, SendFailed
from codebutler_worker.agents.session_logs import SESSIONS
from codebutler_worker.commands import logs as sending
from codebutler_worker.present import pieces
from tests.events import posted
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

SECRET = "correct horse battery staple 4711"
TOKEN = "ghp_" + "Ab1" * 12
LOG = "S1"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything some thousand times smaller."""
    monkeypatch.setattr(sending, "WHOLE_BYTES", 8000)
    monkeypatch.setattr(sending, "MAX_PARTS", 6)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 2000)
    monkeypatch.setattr(pieces, "REACH_BYTES", 600)
    monkeypatch.setattr(pieces, "SEARCHED_BYTES", 500)


def lines(number: int) -> bytes:
    return b"".join(b"line %d of an ordinary log \xff\r\n" % at for at in range(number))


def keep(repo: Path, content: bytes) -> None:
    directory = repo / SESSIONS
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{LOG}.log").write_bytes(content)


def knowing(repo: Path) -> RepoSettings:
    """The worker is told a secret."""
    told = settings(repo)
    openai = structs.replace(told.config.openai, api_key=SECRET)
    return structs.replace(told, config=structs.replace(told.config, openai=openai))


def say(parent: Parent, name: str, argument: str = "", ts: str = "300.1", thread: str | None = None) -> None:
    event = posted(channel=CHANNEL, ref=ts, user=USER, text=f"!{name} {argument}".strip(), thread=thread)
    parent.deliver(event, Command(name=name, argument=argument))


def uploads(parent: Parent) -> list[Upload]:
    return [operation for operation in parent.operations if isinstance(operation, Upload)]


def told(parent: Parent) -> str:
    """What the one line says by now."""
    shown = [
        text_of(op)
        for op in parent.operations
        if isinstance(op, Post | Update) and text_of(op).startswith("📎")
    ]
    return shown[-1] if shown else ""


def numbers(parent: Parent) -> list[str]:
    return [file.filename.removeprefix(f"{LOG}.part-").removesuffix(".log") for file in uploads(parent)]


async def test_all_of_it_comes_in_numbered_parts_that_make_it_up(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        content = lines(1200)
        keep(tmp_path, content)
        say(parent, "logs", LOG)
        await parent.until(lambda: "joins them" in told(parent), flow=True)
        assert b"".join(file.content for file in uploads(parent)) == content
        assert numbers(parent) == [f"{n:02}-of-05" for n in range(1, 6)]
        assert all(file.content.endswith(b"\n") and len(file.content) <= 8000 for file in uploads(parent))
        assert {file.thread for file in uploads(parent)} == {"300.1"}
        line, *others = parent.posts
        assert text_of(line) == f"📎 `{LOG}`, 37 kB, comes in 5 parts. Sending part 1 of 5… `!stop` ends it."
        assert not others
        assert told(parent) == f"📎 `{LOG}`, 37 kB, in 5 parts. `cat {LOG}.part-*.log` joins them."
        assert any("Sending part 4 of 5" in text_of(update) for update in parent.updates)


@pytest.mark.parametrize(("size", "files"), [(8000, 1), (8001, 2)])
async def test_one_that_is_just_short_enough_is_one_file(tmp_path: Path, size: int, files: int) -> None:
    async with worker(settings(tmp_path)) as parent:
        keep(tmp_path, b"x" * size)
        say(parent, "logs", LOG)
        await parent.until(lambda: len(uploads(parent)) == files, flow=True)
        await parent.until(parent.is_idle, flow=True)
        assert b"".join(file.content for file in uploads(parent)) == b"x" * size
        assert (uploads(parent)[0].filename == f"{LOG}.log") is (files == 1)


@pytest.mark.parametrize("secret", [SECRET, TOKEN])
async def test_a_secret_between_two_parts_is_in_neither(tmp_path: Path, secret: str) -> None:
    async with worker(knowing(tmp_path)) as parent:
        clean = b"one line without an end " * 900
        edges = range(7500, 20_000, 7500)
        content = bytearray(clean)
        for edge in edges:
            said = f" {secret} ".encode()
            content[edge - 20 : edge - 20 + len(said)] = said
        keep(tmp_path, bytes(content))
        say(parent, "logs", LOG)
        await parent.until(lambda: "joins them" in told(parent), flow=True)
        sent = b"".join(file.content for file in uploads(parent))
        assert sent == bytes(content).replace(secret.encode(), b"[redacted]")
        assert sent.count(b"[redacted]") == 2


async def test_a_part_is_made_only_when_the_one_before_was_taken(tmp_path: Path) -> None:
    async with worker(settings(tmp_path), mute=True) as parent:
        keep(tmp_path, lines(1200))
        say(parent, "logs", LOG)
        for number in range(1, 6):
            await parent.until(lambda expected=number: len(uploads(parent)) == expected, flow=True)  # type: ignore[misc]  # defaults of a lambda
            await parent.clock.advance(60)
            assert len(uploads(parent)) == number
            take(parent)
        await parent.until(lambda: "joins them" in told(parent), flow=True)


def take(parent: Parent) -> None:
    """Do everything that was sent so far."""
    for send in parent.said(Send):
        parent.take(send)


async def test_stop_ends_it_and_says_how_to_get_the_rest(tmp_path: Path) -> None:
    async with worker(settings(tmp_path), mute=True) as parent:
        keep(tmp_path, lines(1200))
        say(parent, "logs", LOG)
        await parent.until(lambda: len(uploads(parent)) == 1, flow=True)
        take(parent)
        await parent.until(lambda: len(uploads(parent)) == 2, flow=True)
        say(parent, "stop", ts="300.2", thread="300.1")
        await parent.post_with(f"🛑 Stopped sending the log `{LOG}`.")
        parent.mute = False
        take(parent)
        await parent.until(parent.is_idle, flow=True)
        assert told(parent) == (
            f"📎 `{LOG}`, 37 kB. 🛑 Stopped. Sent 1-2 of 5 parts. `!logs {LOG} 3-5` sends the rest."
        )
        assert len(uploads(parent)) == 2
        say(parent, "logs", f"{LOG} 3-5", ts="300.3", thread="300.1")
        await parent.until(lambda: len(uploads(parent)) == 5, flow=True)
        await parent.until(parent.is_idle, flow=True)
        assert b"".join(file.content for file in uploads(parent)) == lines(1200)
        assert told(parent) == f"📎 `{LOG}`, 37 kB: part 3-5 of 5."


async def test_a_part_that_slack_refuses_ends_it(tmp_path: Path) -> None:
    async with worker(settings(tmp_path), mute=True) as parent:
        keep(tmp_path, lines(1200))
        say(parent, "logs", LOG)
        await parent.until(lambda: len(uploads(parent)) == 1, flow=True)
        take(parent)
        await parent.until(lambda: len(uploads(parent)) == 2, flow=True)
        parent.mute = False
        (op_id,) = [
            send.op_id
            for send in parent.said(Send)
            if isinstance(send.operation, Upload) and "part-02" in send.operation.filename
        ]
        parent.channel.send(SendFailed(op_id=op_id, code="storage_limit_reached"))
        await parent.until(lambda: "refused part" in told(parent), flow=True)
        assert told(parent) == (
            f"📎 `{LOG}`, 37 kB. ❌ The chat refused part 2 (`storage_limit_reached`). Sent 1 of 5 parts. "
            f"`!logs {LOG} 2-5` sends the rest."
        )
        assert len(uploads(parent)) == 2


@pytest.mark.parametrize("taken", [0, 1, 3])
async def test_a_restart_goes_on_with_what_is_missing(tmp_path: Path, taken: int) -> None:
    content = lines(1200)
    keep(tmp_path, content)
    async with worker(settings(tmp_path), mute=True) as parent:
        say(parent, "logs", LOG)
        for number in range(1, taken + 2):
            await parent.until(lambda expected=number: len(uploads(parent)) == expected, flow=True)  # type: ignore[misc]  # defaults of a lambda
            if number <= taken:
                take(parent)
        done = uploads(parent)[:taken]
    async with worker(settings(tmp_path)) as parent:
        await parent.until(lambda: "joins them" in told(parent), flow=True)
        assert b"".join(file.content for file in [*done, *uploads(parent)]) == content
        assert [send.unsure for send in parent.said(Send) if isinstance(send.operation, Upload)] == [
            True,
            *[False] * (4 - taken),
        ]


async def test_what_was_taken_is_kept_no_longer(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        keep(tmp_path, lines(1200))
        for number, ts in enumerate(("300.1", "400.1", "500.1"), 1):
            say(parent, "logs", LOG, ts=ts)
            await parent.until(lambda expected=5 * number: len(uploads(parent)) == expected, flow=True)  # type: ignore[misc]  # defaults of a lambda
            await parent.until(parent.is_idle, flow=True)
    with closing(sqlite3.connect(tmp_path / ".codebutler" / "store.db")) as store:
        used = [
            store.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        ]
    pages, free, page_bytes = used
    assert (pages - free) * page_bytes < 300_000


async def test_a_running_sessions_log_counts_as_far_as_it_had_come(tmp_path: Path) -> None:
    async with worker(settings(tmp_path), mute=True) as parent:
        content = lines(600)
        keep(tmp_path, content)
        say(parent, "logs", LOG)
        await parent.until(lambda: len(uploads(parent)) == 1, flow=True)
        with (tmp_path / SESSIONS / f"{LOG}.log").open("ab") as log:
            log.write(lines(3000))
        parent.mute = False
        take(parent)
        await parent.until(lambda: "joins them" in told(parent), flow=True)
        assert b"".join(file.content for file in uploads(parent)) == content


async def test_a_log_that_is_gone_meanwhile_says_so(tmp_path: Path) -> None:
    async with worker(settings(tmp_path), mute=True) as parent:
        keep(tmp_path, lines(600))
        say(parent, "logs", LOG)
        await parent.until(lambda: len(uploads(parent)) == 1, flow=True)
        (tmp_path / SESSIONS / f"{LOG}.log").unlink()
        parent.mute = False
        take(parent)
        await parent.until(lambda: "It can no longer be read" in told(parent), flow=True)


async def test_of_a_huge_one_people_say_which_parts_they_want(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        content = lines(3000)
        keep(tmp_path, content)
        say(parent, "logs", LOG)
        post = await parent.post_with("would take 13 parts; at most 6 are sent at once")
        assert f"`!logs {LOG} 8-13` the end" in text_of(post)
        assert not uploads(parent)
        say(parent, "logs", f"{LOG} 8-13", ts="300.2")
        await parent.until(lambda: len(uploads(parent)) == 6, flow=True)
        await parent.until(parent.is_idle, flow=True)
        assert content.endswith(b"".join(file.content for file in uploads(parent)))


@pytest.mark.parametrize("wanted", ["0", "6", "3-9", "4-2"])
async def test_parts_that_there_are_not(tmp_path: Path, wanted: str) -> None:
    async with worker(settings(tmp_path)) as parent:
        keep(tmp_path, lines(1200))
        say(parent, "logs", f"{LOG} {wanted}")
        await parent.post_with("has 5 parts, numbered from 1")

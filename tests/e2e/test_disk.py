"""When the disk fails: nothing is acknowledged that is not kept, and nothing kept is silently forgotten.

| case | what happens |
|---|---|
| D01 | the home's disk is full: no acknowledgement, no busy loop; answered once when there is room again |
| D02 | the home's disk is read-only: refused in a line; what was written meanwhile is answered once afterwards |
| D03 | the repository's disk is full: the message waits and is answered once when there is room again |
| D04 | writes end in errors: no acknowledgement; answered once when they work again |
| D05 | no file descriptors are left: no busy loop; connected again and answered when there are some |
| D06 | the store is lost or damaged: restored from the backup, the channel is told |
| D07 | the store is a newer version's: refused, the channel is told, nothing is replaced |
| D08 | the journal is lost or cut off: restored, what it lacks is fetched, everything answered once |
| D09 | `codebutler migrate` beside a running worker is refused: one writer |
| D10 | the journal is removed while it is in use: written again, nothing is lost, the log and `status` say so |
| D11 | the home's disk is full while work runs: it goes on and ends; what is shown already shows its end, a new post |
|     | may wait; what comes then is told to wait for disk space; each is answered once; the audit log has every line |
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.house import House, Message, house, whole_text
from tests.e2e.small_disk import SmallDisk, small_disk
from tests.programs import require

QUICK = {"debounceSeconds": 0, "default": "rehearsal"}


@asynccontextmanager
async def on_a_small_disk(built: House, directory: Path) -> AsyncIterator[SmallDisk]:
    """A running supervisor whose ``directory`` is on a disk of 8 MB."""
    async with small_disk(directory, "8m") as disk:
        built.prefix = disk.prefix
        await built.supervise()
        try:
            yield disk
        finally:
            await built.stop()
            built.prefix = ()


def audited(disk: SmallDisk) -> str:
    """The audit log, on the home's own small disk."""
    return (disk.inside / "logs" / "audit.jsonl").read_text()


async def eventually(look: Callable[[], bool], deadline_s: float = 30) -> None:
    async with asyncio.timeout(deadline_s):
        while not look():  # noqa: ASYNC110 - nobody would set an event
            await asyncio.sleep(0.05)


def footers(built: House, channel: str, ts: str) -> list[Message]:
    """The finished answers in a thread."""
    return [message for message in built.answers(channel, ts) if "_tokens:" in whole_text(message)]


def is_at_work(built: House, channel: str, ts: str) -> bool:
    return "eyes" in built.reactions(channel, ts)


async def check_answered_once(built: House, channel: str, ts: str, containing: str) -> None:
    await built.answer(channel, ts, containing)
    assert await built.outcome(channel, ts) == "white_check_mark"
    assert len(footers(built, channel, ts)) == 1


def cpu_s(pid: int) -> float:
    """Processor time used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def supervisor_pid(built: House) -> int:
    assert built.supervisor is not None
    return built.supervisor.pid


async def check_unacknowledged(built: House, channel: str, text: str, said: str) -> str:
    """Write a message that cannot be kept, until the supervisor has said why; returns its ts."""
    acknowledged, already = built.workspace.hub.counts.acked, built.log().count(said)
    ts = await built.say(channel, text)
    await eventually(lambda: built.log().count(said) > already)
    # What we say of it ourselves is an event, too, and is acknowledged.
    assert built.workspace.hub.counts.acked - acknowledged <= 1
    assert built.reactions(channel, ts) == set()
    return ts


async def test_d01_a_full_disk(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        async with on_a_small_disk(built, built.home) as disk:
            disk.fill()
            ts = await check_unacknowledged(built, channel, "read README.md", "the disk is full")
            before = cpu_s(supervisor_pid(built))
            await asyncio.sleep(1)  # the time over which it is measured
            assert cpu_s(supervisor_pid(built)) - before < 0.5
            disk.free()
            await check_answered_once(built, channel, ts, "A sample repository.")


async def test_d02_a_read_only_disk(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        async with on_a_small_disk(built, built.home) as disk:
            assert await built.stop() == 0
            await disk.remount("ro")
            await built.start_supervisor()
            assert built.supervisor is not None
            assert await built.supervisor.wait() == 1
            said = built.log().splitlines()[-1]
            assert said.startswith("codebutler: ")
            assert "ead-only" in said
            ts = await built.say(channel, "read README.md")
            await disk.remount("rw")
            await built.supervise()
            await check_answered_once(built, channel, ts, "A sample repository.")


async def test_d03_the_repositorys_disk_is_full(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        async with on_a_small_disk(built, git_repo / ".codebutler") as disk:
            disk.fill()
            ts = await built.say(channel, "read README.md")
            await eventually(lambda: "store.db: the disk is full: free some space" in built.log())
            assert footers(built, channel, ts) == []
            disk.free()
            await check_answered_once(built, channel, ts, "A sample repository.")


async def test_d04_a_disk_that_refuses_writes(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        pid = supervisor_pid(built)
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        now_bytes = (built.home / "journal.db-wal").stat().st_size
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (now_bytes, before[1]))
        ts = await check_unacknowledged(built, channel, "read README.md", "its disk reports an error")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        await check_answered_once(built, channel, ts, "A sample repository.")


async def test_d05_no_file_descriptors_are_left(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        pid = supervisor_pid(built)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
        built.workspace.hub.connections.drop()
        await eventually(lambda: "cannot connect to Slack" in built.log())
        used_s = cpu_s(pid)
        await asyncio.sleep(2)  # the time over which it is measured
        assert cpu_s(pid) - used_s < 1
        ts = await built.say(channel, "read README.md")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        await check_answered_once(built, channel, ts, "A sample repository.")


def lost(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for start in range(4096, len(content), 4096):
        content[start] ^= 0x08
    path.write_bytes(content)


def told(built: House, channel: str, words: str) -> list[str]:
    """What the channel itself was told that contains these words."""
    history = built.workspace.call("conversations.history", built.workspace.bot_token, channel=channel)
    return [message["text"] for message in history["messages"] if words in message.get("text", "")]


@pytest.mark.parametrize("harm", [lost, damaged])
async def test_d06_the_store_is_restored(
    tmp_path: Path, git_repo: Path, harm: Callable[[Path], None]
) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        first = await built.say(channel, "list the files")
        await check_answered_once(built, channel, first, "README.md")
        await eventually(lambda: bool(list(built.home.glob("backups/sample-*/store-*.db"))))
        assert await built.stop() == 0
        harm(git_repo / ".codebutler" / "store.db")
        await built.supervise()
        words = "was restored from the backup of"
        await built.until("the notice", lambda: told(built, channel, words) or None)
        assert "Restored from the backup of" in built.log()
        kept = list((git_repo / ".codebutler").glob("store.db.damaged-*"))
        assert len(kept) == (0 if harm is lost else 1)
        second = await built.say(channel, "read README.md")
        await check_answered_once(built, channel, second, "A sample repository.")
        assert len(footers(built, channel, first)) == 1
        assert len(told(built, channel, words)) == 1


async def test_d07_a_newer_store_is_refused(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        await eventually(lambda: bool(list(built.home.glob("backups/sample-*/store-*.db"))))
        assert await built.stop() == 0
        store = git_repo / ".codebutler" / "store.db"
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
        before = store.read_bytes()
        await built.start_supervisor()
        await built.until("the notice", lambda: told(built, channel, "newer CodeButler") or None)
        await built.until_status(lambda status: status["repos"][0]["worker"]["state"] == "stopped")
        assert store.read_bytes() == before


@pytest.mark.parametrize("harm", [lost, cut_off])
async def test_d08_the_journal_is_restored(
    tmp_path: Path, git_repo: Path, harm: Callable[[Path], None]
) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        await eventually(lambda: bool(list(built.home.glob("backups/journal/journal-*.db"))))
        first = await built.say(channel, "list the files")
        await check_answered_once(built, channel, first, "README.md")
        assert await built.stop() == 0
        harm(built.home / "journal.db")
        second = await built.say(channel, "read README.md")
        await built.supervise()
        await check_answered_once(built, channel, second, "A sample repository.")
        await built.until("the notice", lambda: told(built, channel, "was restored from the backup") or None)
        third = await built.say(channel, "list the files")
        await check_answered_once(built, channel, third, "README.md")
        assert len(footers(built, channel, first)) == 1
        assert len(list(built.home.glob("journal.db.damaged-*"))) == (0 if harm is lost else 1)


async def test_d10_the_journal_is_removed_while_it_is_in_use(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        first = await built.say(channel, "list the files")
        await check_answered_once(built, channel, first, "README.md")
        lost(built.home / "journal.db")
        second = await built.say(channel, "read README.md")
        await check_answered_once(built, channel, second, "A sample repository.")
        words = "was removed or replaced while it was in use; it was recreated"
        await eventually(lambda: words in built.log())
        assert words in await built.run("status")
        assert await built.stop(signal.SIGKILL) == -signal.SIGKILL
        await built.supervise()
        third = await built.say(channel, "list the files")
        await check_answered_once(built, channel, third, "README.md")
        for ts in (first, second):
            assert len(footers(built, channel, ts)) == 1


async def test_d09_no_migration_beside_a_worker(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        # As if this program were newer than the one that runs.
        with closing(sqlite3.connect(git_repo / ".codebutler" / "store.db")) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = '0003'")
        said = await built.run("migrate", "sample", check=False)
        assert "this repository's worker or another migration uses it: stop that one first" in said
        assert "would be migrated" in await built.run("migrate", "sample", "--check")
        assert list((git_repo / ".codebutler").glob("*.bak")) == []


async def test_d11_what_runs_outlives_a_full_disk(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        async with on_a_small_disk(built, built.home) as disk:
            wait = "until [ -e go ]; do sleep 0.1; done"
            said = [f"run: echo begun; {wait}; echo 1 done", f"run: {wait}; echo 2 done"]
            shown, silent = [await built.say(channel, text) for text in said]
            for ts in (shown, silent):
                await eventually(partial(is_at_work, built, channel, ts))
            await built.answer(channel, shown, "begun")
            while 4096 - len(audited(disk)) % 4096 > 250:  # what is left of the log's last block
                pinged = await built.say(channel, "!ping")
                await built.answer(channel, pinged, "")
            disk.fill()
            (git_repo / "go").touch()
            await built.answer(channel, shown, "1 done")
            assert await built.outcome(channel, shown) == "white_check_mark"
            # Its answer is a new post, which goes out once the journal has taken a note of it: now, or with room again.
            await eventually(lambda: '"2 done"' in built.log())
            after = await built.say(channel, "read README.md")
            await built.until("the notice", lambda: told(built, channel, "Waiting for disk space") or None)
            assert footers(built, channel, after) == []
            disk.free()
            await built.answer(channel, silent, "2 done")
            assert await built.outcome(channel, silent) == "white_check_mark"
            assert len(built.answers(channel, silent)) == 1
            await check_answered_once(built, channel, after, "A sample repository.")
            status = await built.status()
            assert status is not None
            assert status["repos"][0]["worker"]["restarts"] == 0
            assert "verified" in await built.run("audit", "verify")
            ends = [json.loads(line) for line in audited(disk).splitlines() if '"exit_code":0' in line]
            assert sorted(end["text"] for end in ends) == [text.removeprefix("run: ") for text in said]

"""What vanishes or breaks under the running product: nothing is lost, nothing is answered twice, and it is told.

| case | what happens |
|---|---|
| V01 | a worker has no file descriptors left: a message gets an answer that says so, no busy loop, the others work |
| V02 | a repository's directory is deleted and cloned anew: served again, its store is the backup, answered once |
| V03 | the home is deleted under a running supervisor: nothing starts and the log says why; answered once after it |
|     | is put back |
| V04 | pages of the store are overwritten while its worker runs: restored from the backup, the channel is told |
| V05 | pages of the journal are overwritten while it is in use: restored at the next start, the channel is told |
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import stat
from pathlib import Path

from tests.e2e.house import House, house, whole_text
from tests.e2e.test_disk import (
    QUICK,
    check_answered_once,
    cpu_s,
    damaged,
    eventually,
    footers,
    supervisor_pid,
    told,
)
from tests.programs import require


async def worker_pid(built: House, number: int = 0) -> int:
    status = await built.status()
    assert status is not None
    return int(status["repos"][number]["worker"]["pid"])


def has_backup(built: House, name: str) -> bool:
    return bool([*built.home.glob(f"backups/{name}")])


async def test_v01_a_worker_without_file_descriptors(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    other = shutil.copytree(git_repo, tmp_path / "other")
    async with house(tmp_path, "sample", "other") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        beside = await built.add_repo(other, "other", agent=QUICK)
        await built.supervise()
        first = await built.say(channel, "list the files")
        await check_answered_once(built, channel, first, "README.md")
        pid = await worker_pid(built)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
        ts = await built.say(channel, "read README.md")
        near = await built.say(beside, "read README.md")
        await check_answered_once(built, beside, near, "A sample repository.")
        told = whole_text(await built.answer(channel, ts, " file"))
        assert "no file descriptors left" in told or "Too many open files" in told  # whoever wanted one first
        assert await built.outcome(channel, ts) == "x"
        used_s = cpu_s(pid)
        await asyncio.sleep(2)  # the time over which it is measured
        assert cpu_s(pid) - used_s < 1
        assert len(built.answers(channel, ts)) == 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        again = await built.say(channel, "read README.md")
        await check_answered_once(built, channel, again, "A sample repository.")
        assert await worker_pid(built) == pid


async def test_v02_a_repository_deleted_and_cloned_anew(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    kept = shutil.copytree(git_repo, tmp_path / "kept")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        first = await built.say(channel, "list the files")
        await check_answered_once(built, channel, first, "README.md")
        await eventually(lambda: has_backup(built, "sample-*/store-*.db"))
        while git_repo.exists():  # git may be writing below it
            shutil.rmtree(git_repo, ignore_errors=True)
        ts = await built.say(channel, "read README.md")
        await built.until_status(lambda status: "no longer exists" in status["repos"][0]["problem"])
        shutil.copytree(kept, git_repo)
        built.hand_over()
        await check_answered_once(built, channel, ts, "A sample repository.")
        assert len(told(built, channel, "was lost and was restored from the backup of")) == 1
        assert len(footers(built, channel, first)) == 1


async def test_v03_the_home_deleted(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        first = await built.say(channel, "list the files")
        await check_answered_once(built, channel, first, "README.md")
        kept = built.home.with_name("kept")
        # The output goes on in the same file, whatever its name.
        os.link(built.home / "supervise.out", tmp_path / "supervise.out")
        shutil.copytree(built.home, kept, ignore=sockets)
        shutil.rmtree(built.home)
        ts = built.workspace.say(channel, "read README.md")
        words = ("messages are refused until this is fixed", "nothing starts until this is fixed")
        await eventually(lambda: any(each in (tmp_path / "supervise.out").read_text() for each in words))
        pid = supervisor_pid(built)
        used_s = cpu_s(pid)
        await asyncio.sleep(2)  # the time over which it is measured
        assert cpu_s(pid) - used_s < 1
        assert footers(built, channel, ts) == []
        assert await built.stop(signal.SIGKILL) == -signal.SIGKILL
        shutil.rmtree(built.home, ignore_errors=True)
        kept.rename(built.home)
        await built.supervise()
        await check_answered_once(built, channel, ts, "A sample repository.")
        assert len(footers(built, channel, first)) == 1


async def test_v04_who_waits_for_a_worker_that_stays_down_is_told(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        git_repo.rename(tmp_path / "elsewhere")
        told = await built.run("send", "sample", "read README.md", "--wait", check=False)
        assert "no longer exists" in told
        assert "your message is kept until it is" in told


def sockets(place: str, names: list[str]) -> set[str]:
    """What cannot be copied."""
    return {name for name in names if stat.S_ISSOCK((Path(place) / name).lstat().st_mode)}


async def test_v04_pages_of_the_store(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        first = await built.say(channel, "list the files")
        await check_answered_once(built, channel, first, "README.md")
        await eventually(lambda: has_backup(built, "sample-*/store-*.db"))
        damaged(git_repo / ".codebutler" / "store.db")
        second = await built.say(channel, "read README.md")
        # Either way it is told: it was answered before the damage showed, or people are asked to send it again.
        [notice] = await built.until(
            "the notice", lambda: told(built, channel, "was restored from the backup of")
        )
        assert "got no answer" in notice
        third = await built.say(channel, "read README.md")
        await check_answered_once(built, channel, third, "A sample repository.")
        assert [*(git_repo / ".codebutler").glob("store.db.damaged-*")]
        assert len(footers(built, channel, first)) == 1
        assert len(footers(built, channel, second)) <= 1


async def test_v05_pages_of_the_journal(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        await eventually(lambda: has_backup(built, "journal/journal-*.db"))
        first = await built.say(channel, "list the files")
        await check_answered_once(built, channel, first, "README.md")
        damaged(built.home / "journal.db")
        second = await built.say(channel, "read README.md")
        await check_answered_once(built, channel, second, "A sample repository.")
        assert await built.stop() == 0
        await built.supervise()
        await built.until("the notice", lambda: told(built, channel, "was restored from the backup"))
        third = await built.say(channel, "list the files")
        await check_answered_once(built, channel, third, "README.md")
        for ts in (first, second):
            assert len(footers(built, channel, ts)) == 1
        assert [*built.home.glob("journal.db.damaged-*")]

"""Process hygiene in a whole house: whatever an agent or a worker does, its turn ends, told in the thread,
the worker's memory stays bounded, and nothing of it is left.

| case | what happens |
|---|---|
| H01 | an agent writes 10,000 lines a second |
| H02 | an agent writes one line of 40 MB |
| H03 | an agent leaves a daemon in a session of its own behind, with walls and without |
| H04 | an agent gives its result and never exits |
| H05 | an agent exits without a result |
| H06 | an agent hangs in mid-stream and ignores signals |
| H07 | an agent is stopped (SIGSTOP) |
| H08 | a worker is stopped (SIGSTOP): replaced, its agent ended, its thread asked, the other repository unmoved |
| H09 | a worker dies in mid-turn: nothing of its agent is left |
| H10 | the supervisor dies in mid-turn: nothing of its workers and agents is left |
| H11 | a worker whose store is too new exits with 78: not restarted, told once, the other repository works |
| H12 | a second SIGTERM ends a house at once in which an agent is still at work |
| H13 | a worker is stopped (SIGSTOP) and its supervisor dies: the next one takes the repository over |
| H14 | readiness, signs of life and the end are told to the service manager |
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.containers import open_directory
from tests.e2e.house import House, house, whole_text
from tests.e2e.misbehaving import write_program
from tests.ordinary import give_repository_away
from tests.programs import require
from tests.soak.gauges import belonging_to

GONE_S = 5.0
# The worker may hold some over-long lines of 16 MB at a time, and no more.
MOST_MB = 120.0
AGENT = {"debounceSeconds": 0, "default": "claude"}
TIME_LIMIT_MIN = 4 / 60


@dataclass(frozen=True)
class Scene:
    """A house with one repository whose agent misbehaves."""

    built: House
    channel: str
    marker: str

    async def ask(self, deed: str) -> tuple[str, str]:
        """Have the agent do it; returns the message's ts and its outcome."""
        ts = await self.built.say(self.channel, deed)
        return ts, await self.built.outcome(self.channel, ts)

    async def begin(self, deed: str) -> str:
        """Have the agent begin; returns the message's ts once what it starts is running."""
        ts = await self.built.say(self.channel, deed)
        await eventually(30, lambda: bool(marked(f"\0{self.marker}\0")))
        return ts

    def left(self) -> list[int]:
        """What runs of the agent and of what it started."""
        return marked(self.marker)

    async def worker(self) -> int:
        """The worker's pid."""
        status = await self.built.until_status(lambda s: s["repos"][0]["worker"]["state"] == "running")
        return int(status["repos"][0]["worker"]["pid"])

    async def still_well(self) -> None:
        """The next message is answered as ever."""
        ts = await self.built.say(self.channel, "hello")
        await self.built.answer(self.channel, ts, "Nothing bad.")


@asynccontextmanager
async def scene(
    tmp_path: Path, repo: Path, mode: str = "auto", minutes: float = 5, place: Path | None = None
) -> AsyncIterator[Scene]:
    """``place``: where the agent's program lies, if not in the test's own directory."""
    require("bwrap")
    marker = f"codebutler-hygiene-{os.getpid()}-{tmp_path.name}"
    program = write_program((place or tmp_path) / marker, marker)
    async with house(tmp_path, "sample", "other") as built:
        settings = {"binary": str(program), "timeout": minutes}
        channel = await built.add_repo(repo, "sample", agent=AGENT, claude=settings, sandbox={"mode": mode})
        if mode == "none":
            give_repository_away(repo)  # without walls root starts nothing in a repository of its own
        await built.supervise()
        yield Scene(built, channel, marker)


@pytest.mark.parametrize("deed", ["flood", "wide"])
async def test_h01_h02_a_flood_and_a_wide_line_cost_no_memory(
    tmp_path: Path, git_repo: Path, deed: str
) -> None:
    async with scene(tmp_path, git_repo) as stage:
        worker = await stage.worker()
        ts, outcome = await stage.ask(deed)
        assert outcome == "white_check_mark"
        answer = await stage.built.answer(
            stage.channel, ts, f"That was {'a flood' if deed == 'flood' else 'wide'}"
        )
        assert "_tokens:" in whole_text(answer)
        assert peak_mb(worker) < MOST_MB
        await stage.still_well()
        assert await stage.worker() == worker


@pytest.mark.parametrize("mode", ["auto", "none"])
async def test_h03_a_daemon_ends_with_the_turn(tmp_path: Path, git_repo: Path, mode: str) -> None:
    with open_directory() as place:
        repo = shutil.copytree(git_repo, place / "repo", symlinks=True)
        async with scene(tmp_path, repo, mode, place=place) as stage:
            ts = await stage.built.say(stage.channel, "daemon")
            await stage.built.answer(stage.channel, ts, "I left somebody behind.")
            await eventually(GONE_S, lambda: not marked(f"\0{stage.marker}\0"))
            await stage.still_well()


async def test_h04_an_agent_that_never_exits_gives_its_answer_and_goes_with_its_worker(
    tmp_path: Path, git_repo: Path
) -> None:
    async with scene(tmp_path, git_repo) as stage:
        ts, outcome = await stage.ask("linger")
        assert outcome == "white_check_mark"
        await stage.built.answer(stage.channel, ts, "Done, and staying.")
        await stage.still_well()
        assert await stage.built.stop() == 0
        await eventually(GONE_S, lambda: not stage.left())


async def test_h05_an_exit_without_a_result_is_a_failure_with_a_reason(
    tmp_path: Path, git_repo: Path
) -> None:
    async with scene(tmp_path, git_repo) as stage:
        ts, outcome = await stage.ask("mute")
        assert outcome == "x"
        await stage.built.answer(stage.channel, ts, "ended without an answer (exit code 0)")
        await eventually(GONE_S, lambda: not stage.left())
        await stage.still_well()


async def test_h06_a_hang_in_mid_stream_ends_at_the_time_limit(tmp_path: Path, git_repo: Path) -> None:
    async with scene(tmp_path, git_repo, minutes=TIME_LIMIT_MIN) as stage:
        ts, outcome = await stage.ask("hang")
        assert outcome == "x"
        await stage.built.answer(stage.channel, ts, "claude.timeout")
        await eventually(GONE_S, lambda: not stage.left())
        await stage.still_well()


async def test_h07_a_stopped_agent_ends_at_the_time_limit(tmp_path: Path, git_repo: Path) -> None:
    async with scene(tmp_path, git_repo, minutes=TIME_LIMIT_MIN) as stage:
        ts = await stage.begin("serve")
        for pid in stage.left():
            os.kill(pid, signal.SIGSTOP)
        assert await stage.built.outcome(stage.channel, ts) == "x"
        await stage.built.answer(stage.channel, ts, "claude.timeout")
        await eventually(GONE_S, lambda: not stage.left())
        await stage.still_well()


async def test_h08_a_stopped_worker_is_replaced_and_disturbs_nobody(tmp_path: Path, git_repo: Path) -> None:
    async with scene(tmp_path, git_repo) as stage:
        other = await stage.built.add_repo(copied(git_repo), "other", agent={**AGENT, "default": "rehearsal"})
        await stage.built.until_status(
            lambda s: [r["worker"]["state"] for r in s["repos"]] == ["running"] * 2
        )
        worker = await stage.worker()
        ts = await stage.begin("serve")
        os.kill(worker, signal.SIGSTOP)
        asked_s = time.monotonic()
        await stage.built.answer(other, await stage.built.say(other, "list the files"), "README.md")
        assert time.monotonic() - asked_s < 5
        await stage.built.answer(stage.channel, ts, "The machine stopped while I was working")
        assert await stage.worker() != worker
        assert "has been silent for 15 s" in stage.built.log()
        await eventually(GONE_S, lambda: not stage.left())
        await stage.still_well()


async def test_h09_a_dead_workers_agent_is_gone(tmp_path: Path, git_repo: Path) -> None:
    async with scene(tmp_path, git_repo) as stage:
        ts = await stage.begin("serve")
        os.kill(await stage.worker(), signal.SIGKILL)
        await eventually(GONE_S, lambda: not stage.left())
        await stage.built.answer(stage.channel, ts, "The machine stopped while I was working")
        await stage.still_well()


async def test_h10_a_dead_supervisor_leaves_nothing(tmp_path: Path, git_repo: Path) -> None:
    async with scene(tmp_path, git_repo) as stage:
        await stage.begin("serve")
        await stage.built.stop(signal.SIGKILL)
        await eventually(GONE_S, lambda: not stage.left() and not belonging_to(stage.built.home))
        await stage.built.supervise()
        await stage.still_well()


async def test_h11_a_store_that_is_too_new_is_told_and_not_tried_again(
    tmp_path: Path, git_repo: Path
) -> None:
    async with scene(tmp_path, git_repo) as stage:
        other = await stage.built.add_repo(copied(git_repo), "other", agent={**AGENT, "default": "rehearsal"})
        await stage.built.stop()
        with contextlib.closing(sqlite3.connect(git_repo / ".codebutler" / "store.db")) as store:
            store.execute("UPDATE alembic_version SET version_num = '9999'")
            store.commit()
        await stage.built.start_supervisor()
        status = await stage.built.until_status(lambda s: s["repos"][0]["worker"]["state"] == "stopped")
        assert status["repos"][0]["worker"]["restarts"] == 0
        await stage.built.answer(other, await stage.built.say(other, "list the files"), "README.md")
        assert await stage.built.until("a notice", lambda: notices(stage) or None) == 1


async def test_h12_a_second_sigterm_ends_it_now(tmp_path: Path, git_repo: Path) -> None:
    async with scene(tmp_path, git_repo) as stage:
        await stage.begin("serve")
        supervisor = stage.built.supervisor
        assert supervisor is not None
        supervisor.send_signal(signal.SIGTERM)
        await eventually(GONE_S, lambda: "a second signal ends it now" in stage.built.log())
        assert stage.left()
        async with asyncio.timeout(GONE_S):
            assert await stage.built.stop() == 0
        await eventually(GONE_S, lambda: not stage.left() and not belonging_to(stage.built.home))


async def test_h13_a_stopped_worker_of_a_dead_supervisor_is_in_nobodys_way(
    tmp_path: Path, git_repo: Path
) -> None:
    async with scene(tmp_path, git_repo) as stage:
        worker = await stage.worker()
        os.kill(worker, signal.SIGSTOP)
        await stage.built.stop(signal.SIGKILL)
        await stage.built.supervise()
        await stage.still_well()
        await eventually(GONE_S, lambda: worker not in belonging_to(stage.built.home))


async def test_h14_the_service_manager_is_told(tmp_path: Path, git_repo: Path) -> None:
    place = str(tmp_path / "notify")
    told = {"NOTIFY_SOCKET": place, "WATCHDOG_USEC": "400000"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(place)
        manager.setblocking(False)
        async with house(tmp_path, "sample", extra_env=told) as built:
            await built.add_repo(git_repo, "sample", agent={"default": "rehearsal"})
            await built.start_supervisor()
            assert "STATUS=repositories: 1, Slack connected" in await heard(manager, "READY=1")
            await heard(manager, "WATCHDOG=1")
            assert await built.stop() == 0
            await heard(manager, "STOPPING=1")


async def heard(manager: socket.socket, wanted: str) -> list[str]:
    """The assignments of the first datagram that holds the wanted one."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(30):
        while wanted not in (lines := (await loop.sock_recv(manager, 4096)).decode().splitlines()):
            pass
    return lines


def marked(marker: str) -> list[int]:
    """The pids of live processes with ``marker`` in their command line."""
    found = []
    wanted = marker.encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
            zombie = ") Z " in (entry / "stat").read_text(errors="replace")
        except OSError:
            continue
        if wanted in words and not zombie:
            found.append(int(entry.name))
    return found


def notices(stage: Scene) -> int:
    """How often the channel was told that its worker stays down."""
    messages = stage.built.workspace.workspace.channel(stage.channel).messages.values()
    return sum("until its configuration is corrected" in message.text for message in messages)


def copied(repo: Path) -> Path:
    """Another repository with the same content."""
    ignored = shutil.ignore_patterns(".codebutler")
    return Path(shutil.copytree(repo, repo.with_name("other"), ignore=ignored))


def peak_mb(pid: int) -> float:
    """The most memory the process ever held."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


async def eventually(deadline_s: float, look: Callable[[], bool]) -> None:
    """The process table tells nobody of its changes: look again until the deadline."""
    async with asyncio.timeout(deadline_s):
        while not look():  # noqa: ASYNC110 - nobody would set an event
            await asyncio.sleep(0.05)

"""The supervisor with real worker processes from a real fork server."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest

from codebutler.domain.clock import SystemClock
from codebutler.domain.message import said
from codebutler.domain.model import Post
from codebutler.supervisor.forkserver import ForkServer
from codebutler.supervisor.lifecycle import Policy, WorkerTiming
from codebutler.supervisor.port import Shared
from codebutler.supervisor.supervisor import Supervisor
from tests.workers.services import RecordingServices, entry, repo

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

QUICK = WorkerTiming(start_s=20, heartbeat_s=0.2, abort_s=0.3, eof_s=0.5)
EAGER = Policy(first_delay_s=0.01, longest_delay_s=0.02, retry_s=600)


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    os.environ["SLACK_BOT_TOKEN"] = "xoxb-not-for-workers"
    given = {"CODEBUTLER_HOME": "/the/home"}
    server = ForkServer("tests.workers.scripted:main", ["tests.workers.scripted"], given)
    server.start()
    yield server
    del os.environ["SLACK_BOT_TOKEN"]


class House:
    """A running supervisor and what it asked of the parent."""

    def __init__(self, supervisor: Supervisor, services: RecordingServices) -> None:
        self.supervisor = supervisor
        self.services = services

    def state(self, name: str = "shop") -> str:
        return next(row.worker.state for row in self.supervisor.rows() if row.name == name)

    def pid(self, name: str = "shop") -> int | None:
        return next(row.worker.pid for row in self.supervisor.rows() if row.name == name)


@asynccontextmanager
async def house(
    fork_server: ForkServer, timing: WorkerTiming = QUICK, policy: Policy = EAGER
) -> AsyncIterator[House]:
    services = RecordingServices()
    shared = Shared(fork_server.spawn, services, SystemClock(), random.Random(1).random, timing, policy)
    async with Supervisor(shared) as supervisor:
        yield House(supervisor, services)


def alive(pid: int) -> bool:
    """Whether the process still runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def started(home: House) -> None:
    home.supervisor.start()
    async with asyncio.timeout(20):
        await home.supervisor.wait_started()


async def test_an_event_is_stored_and_settled(fork_server: ForkServer) -> None:
    async with house(fork_server) as home:
        home.supervisor.add(repo())
        await started(home)
        home.supervisor.deliver(entry(1))
        home.supervisor.deliver(entry(2))
        await home.services.until(lambda: home.services.settled == [1, 2])
        (row,) = await home.supervisor.status()
        assert row.worker.state == "running"
        assert row.worker.pss_bytes is None or row.worker.pss_bytes > 2**20


@needs_proc
async def test_a_worker_that_says_nothing_runs_while_a_program_does_is_doubted(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "end")
    async with house(fork_server) as home:
        home.supervisor.add(repo())
        await started(home)
        (row,) = await home.supervisor.status()
        assert (row.worker.programs, row.doubt) == (0, "")
        home.supervisor.deliver(entry(1, f"child echo begun; cat {tmp_path / 'end'}"))
        await home.services.until(lambda: home.services.settled == [1])
        with (tmp_path / "end").open("w"):  # opens when the program has begun to read
            (row,) = await home.supervisor.status()
            assert row.worker.programs
            assert "reports that nothing runs" in row.doubt
        await home.services.until(lambda: "begun" in home.services.log_text("shop"))


async def test_what_a_worker_has_not_taken_is_counted_by_us(fork_server: ForkServer) -> None:
    async with house(fork_server) as home:
        home.supervisor.add(repo())
        home.supervisor.deliver(entry(1))
        home.supervisor.deliver(entry(2))
        (row,) = await home.supervisor.status()
        assert (row.worker.undelivered, row.worker.programs) == (2, None)
        await started(home)
        await home.services.until(lambda: home.services.settled == [1, 2])
        assert home.supervisor.rows()[0].worker.undelivered == 0


async def test_an_operation_is_sent_answered_and_audited(fork_server: ForkServer) -> None:
    async with house(fork_server) as home:
        home.supervisor.add(repo())
        await started(home)
        home.supervisor.deliver(entry(7, "post hello"))
        home.supervisor.deliver(entry(8, "audit ls"))
        await home.services.until(lambda: "sent op7 posted-op7" in home.services.log_text("shop"))
        assert home.services.sent == [("shop", "op7", Post(message=said("hello")), False)]
        await home.services.until(lambda: bool(home.services.audits))
        assert home.services.audits[0].text == "ls"


@needs_proc
async def test_a_worker_inherits_no_token_no_pipe_and_no_main_module(fork_server: ForkServer) -> None:
    async with house(fork_server) as home:
        for number in range(3):
            home.supervisor.add(repo(f"r{number}", f"C0{number}"))
        await started(home)
        home.supervisor.deliver(entry(1, "environment", "C02"))
        await home.services.until(lambda: "environ" in home.services.log_text("r2"))
        facts = msgspec.json.decode(home.services.log_text("r2").splitlines()[-1])
    assert "SLACK_BOT_TOKEN" not in facts["environ"]
    assert "SLACK_BOT_TOKEN" not in facts["fork_server"]
    assert facts["environ"]["PYTHONSAFEPATH"] == "1"
    assert facts["environ"]["CODEBUTLER_HOME"] == "/the/home"
    assert os.environ.get("CODEBUTLER_HOME") != "/the/home"
    assert os.environ["SLACK_BOT_TOKEN"] == "xoxb-not-for-workers"
    sockets = [fd for fd, target in facts["fds"].items() if target.startswith("socket:")]
    assert len(sockets) == 1, facts["fds"]
    assert facts["fds"]["0"] == "/dev/null"
    assert facts["main"] is None or "pytest" not in facts["main"]
    assert facts["leader"] is True
    assert facts["parents"] == []


async def test_what_a_dead_worker_had_not_stored_comes_again(fork_server: ForkServer, tmp_path: Path) -> None:
    async with house(fork_server) as home:
        home.supervisor.add(repo())
        await started(home)
        home.supervisor.deliver(entry(1, f"leave {tmp_path / 'been-here'}"))
        home.supervisor.deliver(entry(2))
        await home.services.until(lambda: home.services.settled == [1, 2])
        assert home.supervisor.rows()[0].worker.restarts == 1
        assert "exited with code 3" in home.services.log_text("shop")


async def test_a_worker_that_always_dies_is_quarantined_and_told_once(fork_server: ForkServer) -> None:
    async with house(fork_server) as home:
        home.supervisor.add(repo("bad", "C01", exit_at_start="1", because="no disk"))
        home.supervisor.add(repo("good", "C02"))
        await started(home)
        await home.services.until(lambda: bool(home.services.notices))
        ((name, why),) = home.services.notices
        assert name == "bad"
        assert "exited with code 1 (no disk)" in why
        assert home.state("bad") == "quarantined"
        home.supervisor.deliver(entry(1, "store", "C02"))
        await home.services.until(lambda: home.services.settled == [1])


async def test_exit_78_is_not_restarted_until_the_settings_change(fork_server: ForkServer) -> None:
    async with house(fork_server) as home:
        home.supervisor.add(repo(exit_at_start="78", because="store too new"))
        home.supervisor.deliver(entry(1))
        await started(home)
        await home.services.until(lambda: bool(home.services.notices))
        assert home.state() == "stopped"
        assert "store too new" in home.services.notices[0][1]
        home.supervisor.reconfigure(repo())
        await home.services.until(lambda: home.services.settled == [1])


@pytest.mark.parametrize("deed", ["garbage", "oversized"])
async def test_a_broken_protocol_ends_that_worker_only(fork_server: ForkServer, deed: str) -> None:
    async with house(fork_server, policy=Policy(first_delay_s=600, longest_delay_s=600)) as home:
        home.supervisor.add(repo("bad", "C01"))
        home.supervisor.add(repo("good", "C02"))
        await started(home)
        bad = home.pid("bad")
        home.supervisor.deliver(entry(1, deed))
        await home.services.until(lambda: home.state("bad") == "backoff")
        assert bad is not None
        assert not alive(bad)
        home.supervisor.deliver(entry(2, "store", "C02"))
        await home.services.until(lambda: home.services.settled == [2])
        assert "was killed by signal 9" in home.services.log_text("bad")


async def test_a_frozen_worker_is_killed_and_replaced(fork_server: ForkServer) -> None:
    async with house(fork_server) as home:
        home.supervisor.add(repo())
        await started(home)
        first = home.pid()
        home.supervisor.deliver(entry(1, "freeze"))
        await home.services.until(lambda: "has been silent" in home.services.log_text("shop"))
        home.supervisor.deliver(entry(2))
        await home.services.until(lambda: 2 in home.services.settled)
        assert first is not None
        assert not alive(first)


async def test_a_traceback_comes_home_and_names_the_reason(fork_server: ForkServer) -> None:
    async with house(fork_server) as home:
        home.supervisor.add(repo())
        await started(home)
        home.supervisor.deliver(entry(1, "stumble over a stone"))
        await home.services.until(lambda: "it starts again" in home.services.log_text("shop"))
        assert "Traceback" in home.services.log_text("shop")
        assert "the worker exited with code 1 (ArithmeticError: over a stone)" in home.services.log_text(
            "shop"
        )


async def test_a_flooding_worker_is_bounded_and_disturbs_nobody(fork_server: ForkServer) -> None:
    async with house(fork_server) as home:
        home.supervisor.add(repo("loud", "C01"))
        home.supervisor.add(repo("calm", "C02"))
        await started(home)
        home.supervisor.deliver(entry(1, "flood"))
        await home.services.until(lambda: "lines dropped" in home.services.log_text("loud"), 20)
        for seq in range(2, 12):
            home.supervisor.deliver(entry(seq, "store", "C02"))
            await home.services.until(partial(home.services.settled.__contains__, seq))
        assert len([line for line in home.services.logs if line[0] == "loud"]) < 10_000


async def test_an_idle_worker_sleeps_and_the_next_event_wakes_it(fork_server: ForkServer) -> None:
    async with house(fork_server) as home:
        home.supervisor.add(repo(idle_min=0.3 / 60))
        await started(home)
        first = home.pid()
        await home.services.until(lambda: home.state() == "sleeping")
        assert home.pid() is None
        home.supervisor.deliver(entry(1))
        await home.services.until(lambda: home.services.settled == [1])
        assert home.pid() != first
        assert home.supervisor.rows()[0].worker.restarts == 0


async def test_shutdown_ends_every_worker_and_a_grace_of_zero_kills(fork_server: ForkServer) -> None:
    async with house(fork_server) as home:
        for number in range(4):
            home.supervisor.add(repo(f"r{number}", f"C0{number}"))
        await started(home)
        pids = [row.worker.pid for row in home.supervisor.rows()]
        home.supervisor.deliver(entry(1, "freeze", "C03"))
        await home.services.until(lambda: home.services.settled == [1])
        patient = asyncio.create_task(home.supervisor.shutdown(60))
        await home.services.until(lambda: [home.state(f"r{n}") for n in range(3)] == ["stopped"] * 3)
        assert not patient.done()
        await home.supervisor.shutdown(0)
        await patient
        assert [row.worker.state for row in home.supervisor.rows()] == ["stopped"] * 4
        assert not any(alive(pid) for pid in pids if pid)


async def test_a_worker_that_hangs_dumps_its_stack_and_is_killed(fork_server: ForkServer) -> None:
    async with house(fork_server, WorkerTiming(start_s=0.3, abort_s=0.2)) as home:
        home.supervisor.add(repo(hang_at_start="1"))
        await started(home)
        await home.services.until(lambda: "it starts again" in home.services.log_text("shop"))
        assert "not ready after 0.3 s" in home.services.log_text("shop")
        assert "Fatal Python error: Aborted" in home.services.log_text("shop")


@needs_proc
async def test_a_killed_fork_server_takes_its_workers_along_and_both_come_back(
    fork_server: ForkServer,
) -> None:
    async with house(fork_server) as home:
        home.supervisor.add(repo())
        await started(home)
        first = home.pid()
        assert first is not None
        parent = int(Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        await home.services.until(lambda: "it starts again" in home.services.log_text("shop"))
        assert not alive(first)
        home.supervisor.deliver(entry(1, "environment"))
        await home.services.until(lambda: "fork_server" in home.services.log_text("shop"))
        assert "xoxb-not-for-workers" not in home.services.log_text("shop")
        assert home.pid() != first


@contextmanager
def no_more_than(spare: int) -> Iterator[None]:
    """So many files can be opened and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        with suppress(OSError):
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        for descriptor in opened[-spare:]:
            os.close(descriptor)
        del opened[-spare:]
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in opened:
            os.close(descriptor)


async def test_a_start_without_files_costs_that_start_and_nobody_else(fork_server: ForkServer) -> None:
    async with house(fork_server) as home:
        home.supervisor.add(repo("first", "C01"))
        await started(home)
        pid = home.pid("first")
        for spare in range(1, 24):
            with no_more_than(spare), pytest.raises(OSError, match="Too many open files"):
                await fork_server.spawn("none")
        home.supervisor.add(repo("second", "C02"))
        await started(home)
        assert (home.state("first"), home.state("second")) == ("running", "running")
        assert home.pid("first") == pid

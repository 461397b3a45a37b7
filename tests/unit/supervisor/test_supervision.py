"""Histories: what happens to workers without processes, on a clock that stands still until told."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from codebutler.clock import ManualClock, settle
from codebutler.errors import (
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
    ProtocolError,
    RegistryError,
    StoreError,
)
from codebutler.model import Post
from codebutler.protocol.messages import (
    Audit,
    Configure,
    Goodbye,
    Heartbeat,
    Hello,
    Log,
    Ready,
    Send,
    SendFailed,
    Sent,
    Shutdown,
    StopTurns,
    Stored,
)
from codebutler.supervisor.kit import Kit
from codebutler.supervisor.supervisor import Supervisor
from tests.workers.inprocess import FakeSpawner, FakeWorker
from tests.workers.services import RecordingServices, entry, repo


@dataclass
class Stage:
    supervisor: Supervisor
    spawner: FakeSpawner
    services: RecordingServices
    clock: ManualClock

    @property
    def worker(self) -> FakeWorker:
        return self.spawner.last

    def state(self, name: str = "shop") -> str:
        return next(row.worker.state for row in self.supervisor.rows() if row.name == name)

    async def beat(self, seconds: float, **load: int) -> None:
        """Let time pass while the worker keeps beating."""
        for _ in range(int(seconds // 5)):
            self.worker.say(Heartbeat(**load))
            await self.clock.advance(5)


@asynccontextmanager
async def stage(
    *, eager: bool = True, stubborn: bool = False, idle_min: float = 0, start: bool = True
) -> AsyncIterator[Stage]:
    services, clock = RecordingServices(), ManualClock()
    spawner = FakeSpawner(eager=eager, stubborn=stubborn)
    async with Supervisor(Kit(spawner, services, clock, lambda: 0.0)) as supervisor:
        supervisor.add(repo(idle_min=idle_min))
        if start:
            supervisor.start()
        await settle()
        yield Stage(supervisor, spawner, services, clock)


async def test_a_worker_is_greeted_with_its_settings_and_runs() -> None:
    async with stage(eager=False) as on:
        assert on.state() == "starting"
        assert on.worker.heard == []
        on.worker.become_ready()
        await settle()
        assert on.worker.heard == [Configure(settings=repo())]
        assert on.state() == "running"


async def test_nothing_starts_before_start() -> None:
    async with stage(start=False) as on:
        on.supervisor.deliver(entry(1))
        await settle()
        assert on.spawner.workers == []
        assert on.state() == "stopped"


@pytest.mark.parametrize(
    "first", [Ready(), Hello(version=99, pid=1000), Hello(version=1, pid=1), Log(tag="INF", text="hi")]
)
async def test_a_worker_that_does_not_greet_properly_is_killed(first: Hello | Ready | Log) -> None:
    async with stage(eager=False) as on:
        on.worker.say(first)
        await settle()
        assert on.worker.signals == [signal.SIGKILL]
        assert on.state() == "backoff"


async def test_events_wait_for_ready_and_go_in_order_and_are_settled_once_stored() -> None:
    async with stage(eager=False) as on:
        for seq in (1, 2, 3):
            on.supervisor.deliver(entry(seq))
        on.supervisor.deliver(entry(2))
        await settle()
        assert on.worker.delivered == []
        on.worker.become_ready()
        await settle()
        assert on.worker.delivered == [1, 2, 3]
        on.worker.store(1, 2)
        await settle()
        assert on.services.settled == [1, 2]


async def test_only_so_many_events_are_under_way_at_a_time() -> None:
    async with stage() as on:
        for seq in range(200):
            on.supervisor.deliver(entry(seq))
        await settle(300)
        assert on.worker.delivered == list(range(64))
        on.worker.store(0, 1)
        await settle()
        assert on.worker.delivered == list(range(66))


async def test_what_was_not_stored_goes_to_the_next_life_and_nothing_else() -> None:
    async with stage() as on:
        for seq in (1, 2, 3):
            on.supervisor.deliver(entry(seq))
        await settle()
        on.worker.store(2)
        await settle()
        on.worker.die(1)
        await on.clock.advance(1)
        assert len(on.spawner.workers) == 2
        assert on.worker.delivered == [1, 3]


async def test_a_worker_that_claims_an_event_it_was_not_sent_is_killed() -> None:
    async with stage() as on:
        on.worker.store(42)
        await settle()
        assert on.services.settled == []
        assert on.state() == "backoff"


async def test_a_journal_that_cannot_settle_harms_no_worker() -> None:
    async with stage() as on:
        on.services.settle_error = StoreError("the disk is full")
        on.supervisor.deliver(entry(1))
        await settle()
        on.worker.store(1)
        await settle()
        assert on.state() == "running"
        assert "stays in the journal: the disk is full" in on.services.log_text("shop")


async def test_an_operation_is_answered_with_its_ts_or_with_slacks_refusal() -> None:
    async with stage() as on:
        on.services.answers["b"] = [ChatError("no", "channel_not_found")]
        on.worker.say(Send(op_id="a", operation=Post(text="x")), Send(op_id="b", operation=Post(text="y")))
        await settle()
        assert Sent(op_id="a", ts="posted-a") in on.worker.heard
        assert SendFailed(op_id="b", code="channel_not_found") in on.worker.heard


async def test_passing_troubles_are_waited_out_and_an_unknown_outcome_makes_unsure() -> None:
    async with stage() as on:
        on.services.answers["a"] = [
            ChatRateLimitedError(30),
            ChatUnreachableError(),
            ChatOutcomeUnknownError(),
            "9.0",
        ]
        on.worker.say(Send(op_id="a", operation=Post(text="x")))
        await on.beat(45)
        assert [unsure for _, _, _, unsure in on.services.sent] == [False, False, False, True]
        assert Sent(op_id="a", ts="9.0") in on.worker.heard


async def test_an_answer_reaches_the_life_that_lives_then_and_no_operation_runs_twice() -> None:
    async with stage() as on:
        on.services.hold.clear()
        on.worker.say(Send(op_id="a", operation=Post(text="x")))
        await settle()
        on.worker.die(1)
        await on.clock.advance(1)
        on.worker.say(Send(op_id="a", operation=Post(text="x"), unsure=True))
        await settle()
        on.services.hold.set()
        await settle()
        assert len(on.services.sent) == 1
        assert Sent(op_id="a", ts="posted-a") in on.worker.heard


async def test_an_answer_to_an_earlier_life_does_not_come_before_the_settings() -> None:
    async with stage() as on:
        on.services.hold.clear()
        on.worker.say(Send(op_id="a", operation=Post(text="x")))
        await settle()
        on.spawner.eager = False
        on.worker.die(1)
        await on.clock.advance(1)
        on.services.hold.set()
        await settle()
        assert on.worker.heard == []
        on.worker.become_ready()
        on.worker.say(Send(op_id="a", operation=Post(text="x"), unsure=True))
        await settle()
        assert on.worker.heard[0] == Configure(settings=repo())
        assert Sent(op_id="a", ts="posted-a") in on.worker.heard


async def test_a_worker_with_too_many_operations_is_not_heard_and_not_taken_for_dead() -> None:
    async with stage() as on:
        on.services.hold.clear()
        for number in range(300):
            on.worker.say(Send(op_id=f"op{number}", operation=Post(text="x")))
        await settle(700)
        assert len(on.services.sent) == 256
        await on.clock.advance(60)
        assert on.state() == "running"
        on.services.hold.set()
        await settle(700)
        assert len(on.services.sent) == 300


async def test_three_missed_heartbeats_are_a_stack_dump_and_then_a_kill() -> None:
    async with stage() as on:
        first = on.worker
        await on.beat(60)
        first.say(Heartbeat())
        await on.clock.advance(14.9)
        assert first.signals == []
        await on.clock.advance(0.2)
        assert first.signals == [signal.SIGABRT]
        await on.clock.advance(2)
        assert first.signals == [signal.SIGABRT, signal.SIGKILL]
        assert on.state() == "backoff"
        assert "silent for 15 s" in on.services.log_text("shop")


async def test_a_worker_that_is_never_ready_is_killed() -> None:
    async with stage(eager=False) as on:
        on.worker.say(Hello(version=1, pid=on.worker.pid))
        await on.clock.advance(29.9)
        assert on.worker.signals == []
        await on.clock.advance(2.2)
        assert on.worker.signals == [signal.SIGABRT, signal.SIGKILL]


async def test_a_worker_that_closes_its_pipe_and_lives_on_is_killed() -> None:
    async with stage() as on:
        on.worker.hang_up()
        await settle()
        assert on.worker.signals == []
        await on.clock.advance(2)
        assert on.worker.signals == [signal.SIGKILL]
        assert on.state() == "backoff"


async def test_five_deaths_are_a_quarantine_told_once_and_tried_each_ten_minutes() -> None:
    async with stage() as on:
        for _ in range(4):
            on.worker.say(Log(tag="ERR", text="no space left"))
            await settle()
            on.worker.die(1)
            await on.clock.advance(1)
        on.worker.die(1)
        await settle()
        assert on.state() == "quarantined"
        assert [name for name, _ in on.services.notices] == ["shop"]
        on.supervisor.deliver(entry(1))
        await on.clock.advance(599)
        assert len(on.spawner.workers) == 5
        await on.clock.advance(1)
        assert on.worker.delivered == [1]
        on.worker.die(1)
        await settle()
        assert on.state() == "quarantined"
        await on.clock.advance(600)
        assert on.state() == "running"
        assert len(on.services.notices) == 1


async def test_the_reason_of_a_death_is_the_workers_last_word() -> None:
    async with stage(eager=False) as on:
        on.worker.say(
            Hello(version=1, pid=on.worker.pid), Goodbye(reason="the store was written by a newer one")
        )
        await settle()
        on.worker.die(78)
        await settle()
        assert on.state() == "stopped"
        assert "written by a newer one" in on.services.notices[0][1]


async def test_what_a_worker_prints_is_logged() -> None:
    async with stage() as on:
        on.worker.print("Fatal Python error: Aborted")
        await settle()
        assert ("shop", "ERR", "Fatal Python error: Aborted") in on.services.logs


async def test_exit_78_waits_for_other_settings() -> None:
    async with stage() as on:
        on.worker.die(78)
        await on.clock.advance(10_000)
        assert len(on.spawner.workers) == 1
        on.supervisor.reconfigure(repo(idle_min=3))
        await settle()
        assert len(on.spawner.workers) == 2
        assert on.worker.heard == [Configure(settings=repo(idle_min=3))]


async def test_new_settings_reach_a_running_worker_by_an_orderly_restart() -> None:
    async with stage() as on:
        first = on.worker
        on.supervisor.reconfigure(repo(idle_min=3), grace_s=7)
        await settle()
        assert Shutdown(reason="restart", grace_s=7) in first.heard
        assert on.worker is not first
        assert on.state() == "running"
        assert on.supervisor.rows()[0].worker.restarts == 0


async def test_a_process_that_cannot_be_started_is_tried_again() -> None:
    async with stage(start=False) as on:
        on.spawner.errors.append(OSError("too many open files"))
        on.supervisor.start()
        await settle()
        assert on.state() == "backoff"
        assert "too many open files" in on.services.log_text("shop")
        await on.clock.advance(1)
        assert on.state() == "running"


async def test_an_idle_worker_sleeps_and_the_next_event_wakes_it() -> None:
    async with stage(idle_min=15) as on:
        first = on.worker
        await on.beat(890)
        assert on.state() == "running"
        await on.beat(15)
        assert Shutdown(reason="sleep", grace_s=10) in first.heard
        assert on.state() == "sleeping"
        assert on.supervisor.rows()[0].worker.pid is None
        await on.clock.advance(10_000)
        assert len(on.spawner.workers) == 1
        on.supervisor.deliver(entry(1))
        await settle()
        assert on.worker.delivered == [1]


@pytest.mark.parametrize("load", [{"running": 1}, {"queued": 1}, {"waiting": 1}, {"outbox": 1}])
async def test_a_worker_with_anything_to_do_does_not_sleep(load: dict[str, int]) -> None:
    async with stage(idle_min=1) as on:
        await on.beat(600, **load)
        assert on.state() == "running"
        await on.beat(70)
        assert on.state() == "sleeping"


async def test_an_event_that_comes_while_the_worker_falls_asleep_wakes_it_again() -> None:
    async with stage(idle_min=1, stubborn=True) as on:
        first = on.worker
        await on.beat(65)
        assert Shutdown(reason="sleep", grace_s=10) in first.heard
        on.supervisor.deliver(entry(1))
        await settle()
        assert first.delivered == []
        first.die(0)
        await settle()
        assert on.worker.delivered == [1]


async def test_a_worker_that_will_not_sleep_is_killed_after_its_grace() -> None:
    async with stage(idle_min=1, stubborn=True) as on:
        first = on.worker
        await on.beat(65)
        await on.clock.advance(4.9)
        assert first.signals == []
        await on.clock.advance(2.1)
        assert first.signals == [signal.SIGABRT, signal.SIGKILL]
        assert on.state() == "backoff"


async def test_shutdown_asks_waits_and_then_kills() -> None:
    async with stage(stubborn=True) as on:
        worker = on.worker
        on.supervisor.stop_turns("shop", "U01")
        ending = on.supervisor.shutdown(20)
        task = asyncio.create_task(ending)
        await settle()
        assert worker.heard[-2:] == [StopTurns(user="U01"), Shutdown(reason="shutdown", grace_s=20)]
        await on.clock.advance(19)
        assert not task.done()
        await on.clock.advance(3.1)
        assert worker.signals == [signal.SIGABRT, signal.SIGKILL]
        await task
        assert on.state() == "stopped"


async def test_a_broken_frame_ends_one_worker_and_no_other() -> None:
    async with stage() as on:
        first = on.worker
        on.supervisor.add(repo("other", "C02"))
        await settle()
        first.say(ProtocolError("unreadable"))
        await settle()
        assert on.state("shop") == "backoff"
        assert on.state("other") == "running"
        assert "unreadable" in on.services.log_text("shop")


async def test_an_audit_that_cannot_be_written_stops_the_worker() -> None:
    class FullDisk(RecordingServices):
        def audit(self, repo: object, record: Audit) -> None:
            raise OSError(28, "No space left on device")

    services, clock, spawner = FullDisk(), ManualClock(), FakeSpawner()
    async with Supervisor(Kit(spawner, services, clock, lambda: 0.0)) as supervisor:
        supervisor.add(repo())
        supervisor.start()
        await settle()
        spawner.last.say(Audit(user="U", thread="", kind="run", text="ls", decision="allowed"))
        await settle()
        assert spawner.last.signals == [signal.SIGKILL]
        assert "audit log cannot be written: No space left" in services.log_text("shop")


async def test_names_and_channels_are_taken_once_and_freed_by_remove() -> None:
    async with stage() as on:
        with pytest.raises(RegistryError, match="named shop"):
            on.supervisor.add(repo("shop", "C09"))
        with pytest.raises(RegistryError, match="belongs to shop"):
            on.supervisor.add(repo("other", "C01"))
        await on.supervisor.remove("shop", 5)
        assert on.supervisor.rows() == ()
        with pytest.raises(RegistryError, match="no repository named shop"):
            on.supervisor.stop_turns("shop", "U01")
        on.supervisor.deliver(entry(1))
        on.supervisor.add(repo("other", "C01"))
        await settle()
        assert on.worker.delivered == []


async def test_status_tells_the_turns_as_the_worker_last_said() -> None:
    async with stage() as on:
        on.worker.say(Heartbeat(running=1, queued=2, waiting=3, outbox=4))
        await settle()
        (row,) = on.supervisor.rows()
        assert (row.turns.running, row.turns.queued, row.turns.waiting) == (1, 2, 3)
        assert on.supervisor.outbox_pending == 4


async def test_a_stored_event_said_just_before_death_counts() -> None:
    async with stage() as on:
        on.supervisor.deliver(entry(1))
        await settle()
        on.worker.say(Stored(seq=1))
        on.worker.die(1)
        await on.clock.advance(1)
        assert on.services.settled == [1]
        assert on.worker.delivered == []

"""How workers end, and what comes after: on a clock that stands still until told."""

from __future__ import annotations

import asyncio
import signal

import pytest

from codebutler.domain.errors import RegistryError
from codebutler.protocol.messages import (
    PROTOCOL_VERSION,
    Configure,
    Goodbye,
    Heartbeat,
    Hello,
    Log,
    Shutdown,
    StopTurns,
    Stored,
)
from tests.clock import settle
from tests.workers.services import entry, repo
from tests.workers.stage import stage


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
        on.worker.say(Hello(version=PROTOCOL_VERSION, pid=on.worker.pid))
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
            Hello(version=PROTOCOL_VERSION, pid=on.worker.pid),
            Goodbye(reason="the store was written by a newer one"),
        )
        await settle()
        on.worker.die(78)
        await settle()
        assert on.state() == "stopped"
        assert "written by a newer one" in on.services.notices[0][1]


async def test_exit_78_waits_for_other_settings() -> None:
    async with stage() as on:
        on.worker.die(78)
        await on.clock.advance(10_000)
        assert len(on.spawner.workers) == 1
        on.supervisor.reconfigure(repo(idle_min=3))
        await settle()
        assert len(on.spawner.workers) == 2
        assert on.worker.heard == [Configure(settings=repo(idle_min=3))]


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


async def test_a_stored_event_said_just_before_death_counts() -> None:
    async with stage() as on:
        on.supervisor.deliver(entry(1))
        await settle()
        on.worker.say(Stored(seq=1))
        on.worker.die(1)
        await on.clock.advance(1)
        assert on.services.settled == [1]
        assert on.worker.delivered == []


async def test_a_person_restarts_a_worker_and_starts_one_that_sleeps_or_is_quarantined() -> None:
    async with stage(idle_min=15) as on:
        first = on.worker
        on.supervisor.restart("shop", grace_s=7)
        await settle()
        assert Shutdown(reason="restart", grace_s=7) in first.heard
        assert (on.state(), len(on.spawner.workers)) == ("running", 2)
        on.supervisor.wake("shop")
        await on.beat(905)
        assert on.state() == "sleeping"
        on.supervisor.wake("shop")
        await settle()
        assert on.state() == "running"
        for _ in range(5):
            on.worker.die(1)
            await on.clock.advance(60)
        assert on.state() == "quarantined"
        on.supervisor.wake("shop")
        await settle()
        assert on.state() == "running"
        with pytest.raises(RegistryError):
            on.supervisor.restart("unknown")

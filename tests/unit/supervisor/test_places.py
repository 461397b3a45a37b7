"""Who may run where only so many may at once."""

from __future__ import annotations

import asyncio
import errno

from codebutler.protocol.messages import Heartbeat
from codebutler.supervisor.port import Places, Shared
from codebutler.supervisor.supervisor import Supervisor
from tests.clock import ManualClock, settle
from tests.workers.inprocess import FakeSpawner
from tests.workers.services import RecordingServices, entry, repo


class Crowd:
    """``names`` served with ``count`` places."""

    def __init__(self, count: int, *names: str) -> None:
        self.names = names
        self.spawner = FakeSpawner()
        self.clock = ManualClock()
        shared = Shared(
            self.spawner.spawn, RecordingServices(), self.clock, lambda: 0.0, places=Places(count)
        )
        self.supervisor = Supervisor(shared)

    async def start(self) -> None:
        for name in self.names:
            self.supervisor.add(repo(name, f"C{name}"))
        self.supervisor.start()
        await settle()

    def states(self) -> str:
        return " ".join(row.worker.state for row in self.supervisor.rows())


async def test_those_who_wait_start_once_the_others_have_nothing_to_do() -> None:
    crowd = Crowd(2, "a", "b", "c")
    async with crowd.supervisor:
        await crowd.start()
        assert crowd.states() == "running running starting"
        assert "limit of open files" in crowd.supervisor.rows()[2].problem
        await asyncio.wait_for(crowd.supervisor.wait_started(), 5)
        first, second = crowd.spawner.workers
        first.say(Heartbeat(running=1))
        await settle()
        assert crowd.states() == "running running starting"
        second.say(Heartbeat())
        await settle()
        await settle()
        assert crowd.states() == "running sleeping running"
        assert crowd.supervisor.rows()[2].problem == ""


async def test_who_was_put_to_sleep_is_woken_by_an_event_and_the_longest_idle_one_makes_room() -> None:
    crowd = Crowd(2, "a", "b", "c")
    async with crowd.supervisor:
        await crowd.start()
        first, second = crowd.spawner.workers
        for worker in (second, first):
            worker.say(Heartbeat())
            await settle()
        assert crowd.states() == "running sleeping running"
        third = crowd.spawner.last
        third.say(Heartbeat())
        await crowd.clock.advance(0.1)
        crowd.supervisor.deliver(entry(1, "hi", "Ca"))
        await settle()
        first.store(1)
        crowd.supervisor.deliver(entry(2, "hi", "Cb"))
        await settle()
        await settle()
        assert crowd.states() == "running running sleeping"


async def test_one_that_waits_is_removed_without_waiting_for_its_turn() -> None:
    crowd = Crowd(1, "a", "b")
    async with crowd.supervisor:
        await crowd.start()
        await asyncio.wait_for(crowd.supervisor.remove("b", 5), 5)
        assert crowd.states() == "running"
        crowd.spawner.last.die(1)
        await settle()
        assert crowd.states() == "backoff"


async def test_starts_for_which_no_files_are_left_are_tried_again_and_never_quarantined() -> None:
    crowd = Crowd(2, "a")
    crowd.spawner.errors = [OSError(errno.EMFILE, "Too many open files") for _ in range(8)]
    async with crowd.supervisor:
        await crowd.start()
        for _ in range(8):
            assert crowd.states() == "backoff"
            assert "Too many open files" in crowd.supervisor.rows()[0].problem
            await crowd.clock.advance(1)
            await settle()
        assert crowd.states() == "running"


async def test_a_place_that_comes_to_one_who_has_just_gone_is_not_lost() -> None:
    places = Places(1)
    assert await places.take("a")
    waiting = asyncio.create_task(places.take("b"))
    await settle()
    assert places.wanted
    waiting.cancel()
    places.give_back("a")
    await asyncio.gather(waiting, return_exceptions=True)
    assert not places.full

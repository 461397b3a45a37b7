"""Histories: what happens to workers without processes, on a clock that stands still until told."""

from __future__ import annotations

import asyncio
import signal

import pytest

from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import (
    ChatError,
    ChatUnreachableError,
    ProtocolError,
    RegistryError,
    StoreError,
)
from codebutler.domain.message import said
from codebutler.domain.model import Post
from codebutler.observe.chain import AuditAct
from codebutler.protocol.messages import (
    PROTOCOL_VERSION,
    Audit,
    Configure,
    Heartbeat,
    Hello,
    Log,
    LogTag,
    Ready,
    Send,
    SendFailed,
    Sent,
    Shutdown,
    TurnEnded,
)
from codebutler.supervisor.port import Shared
from codebutler.supervisor.supervisor import Supervisor
from tests.clock import ManualClock, settle
from tests.workers.inprocess import FakeSpawner
from tests.workers.services import RecordingServices, entry, repo
from tests.workers.stage import stage


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
    "first",
    [Ready(), Hello(version=99, pid=1000), Hello(version=PROTOCOL_VERSION, pid=1), Log(tag="INF", text="hi")],
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
        on.worker.say(
            Send(op_id="a", operation=Post(message=said("x"))),
            Send(op_id="b", operation=Post(message=said("y"))),
        )
        await settle()
        assert Sent(op_id="a", ref="posted-a") in on.worker.heard
        assert SendFailed(op_id="b", code="channel_not_found") in on.worker.heard


async def test_what_the_sender_gave_up_when_it_closed_is_not_answered() -> None:
    """The worker keeps it, and sends it again to the next life."""
    async with stage() as on:
        on.services.answers["a"] = [ChatUnreachableError("closed")]
        on.worker.say(Send(op_id="a", operation=Post(message=said("x"))))
        await settle()
        assert not [told for told in on.worker.heard if isinstance(told, Sent | SendFailed)]


async def test_the_sender_hears_that_an_operation_under_way_is_outdated_and_it_is_answered_once() -> None:
    async with stage() as on:
        on.services.hold.clear()
        on.worker.say(Send(op_id="a", operation=Post(message=said("x"))))
        await settle()
        on.worker.say(Send(op_id="a", operation=Post(message=said("x"), outdated=True), unsure=True))
        await settle()
        on.services.hold.set()
        await settle()
        assert [unsure for _, _, _, unsure in on.services.sent] == [False, True]
        assert [told for told in on.worker.heard if isinstance(told, Sent)] == [
            Sent(op_id="a", ref="posted-a")
        ]


async def test_an_answer_reaches_the_life_that_lives_then_and_no_operation_runs_twice() -> None:
    async with stage() as on:
        on.services.hold.clear()
        on.worker.say(Send(op_id="a", operation=Post(message=said("x"))))
        await settle()
        on.worker.die(1)
        await on.clock.advance(1)
        on.worker.say(Send(op_id="a", operation=Post(message=said("x")), unsure=True))
        await settle()
        on.services.hold.set()
        await settle()
        assert len(on.services.sent) == 1
        assert Sent(op_id="a", ref="posted-a") in on.worker.heard


async def test_an_answer_to_an_earlier_life_does_not_come_before_the_settings() -> None:
    async with stage() as on:
        on.services.hold.clear()
        on.worker.say(Send(op_id="a", operation=Post(message=said("x"))))
        await settle()
        on.spawner.eager = False
        on.worker.die(1)
        await on.clock.advance(1)
        on.services.hold.set()
        await settle()
        assert on.worker.heard == []
        on.worker.become_ready()
        on.worker.say(Send(op_id="a", operation=Post(message=said("x")), unsure=True))
        await settle()
        assert on.worker.heard[0] == Configure(settings=repo())
        assert Sent(op_id="a", ref="posted-a") in on.worker.heard


async def test_a_worker_with_too_many_operations_is_not_heard_and_not_taken_for_dead() -> None:
    async with stage() as on:
        on.services.hold.clear()
        for number in range(300):
            on.worker.say(Send(op_id=f"op{number}", operation=Post(message=said("x"))))
        await settle(700)
        assert len(on.services.sent) == 256
        await on.clock.advance(60)
        assert on.state() == "running"
        on.services.hold.set()
        await settle(700)
        assert len(on.services.sent) == 300


async def test_what_a_worker_prints_is_logged() -> None:
    async with stage() as on:
        on.worker.print("Fatal Python error: Aborted")
        await settle()
        assert ("shop", "ERR", "Fatal Python error: Aborted") in on.services.logs


async def test_new_settings_reach_a_running_worker_by_an_orderly_restart() -> None:
    async with stage() as on:
        first = on.worker
        on.supervisor.reconfigure(repo(idle_min=3), grace_s=7)
        await settle()
        assert Shutdown(reason="restart", grace_s=7) in first.heard
        assert on.worker is not first
        assert on.state() == "running"
        assert on.supervisor.rows()[0].worker.restarts == 0


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


async def test_what_a_worker_says_is_on_its_way_before_what_it_notes() -> None:
    class Watched(RecordingServices):
        under_way = 0

        def log(self, repo: str, tag: LogTag, text: str) -> None:
            if text == "it has answered":
                self.under_way = len(self.sent)

    services, clock, spawner = Watched(), ManualClock(), FakeSpawner()
    async with Supervisor(Shared(spawner.spawn, services, clock, lambda: 0.0)) as supervisor:
        supervisor.add(repo())
        supervisor.start()
        await settle()
        spawner.last.say(Send(op_id="a", operation=Post(message=said("x"))))
        spawner.last.say(Log(tag="INF", text="it has answered"))
        await settle()
        assert services.under_way == 1


async def test_the_end_of_a_turn_is_answered_when_it_is_kept_and_holds_up_nothing_else() -> None:
    class SlowDisk(RecordingServices):
        def __init__(self) -> None:
            super().__init__()
            self.kept = asyncio.Event()

        async def turn_ended(self, repo: RepoSettings, ended: TurnEnded) -> None:
            await self.kept.wait()
            await super().turn_ended(repo, ended)

    services, clock, spawner = SlowDisk(), ManualClock(), FakeSpawner()
    async with Supervisor(Shared(spawner.spawn, services, clock, lambda: 0.0)) as supervisor:
        supervisor.add(repo())
        supervisor.start()
        await settle()
        spawner.last.say(TurnEnded(op_id="end", thread="1.0", messages=("1.0",), outcome="done"))
        spawner.last.say(Send(op_id="a", operation=Post(message=said("the next answer"))))
        await settle()
        assert [each.op_id for each in spawner.last.heard if isinstance(each, Sent)] == ["a"]
        services.kept.set()
        await settle()
        assert [each.op_id for each in spawner.last.heard if isinstance(each, Sent)] == ["a", "end"]
        assert [each.op_id for each in services.ended] == ["end"]


async def test_an_audit_that_cannot_be_written_stops_the_worker() -> None:
    class FullDisk(RecordingServices):
        def audit(self, act: AuditAct) -> None:
            raise OSError(28, "No space left on device")

    services, clock, spawner = FullDisk(), ManualClock(), FakeSpawner()
    async with Supervisor(Shared(spawner.spawn, services, clock, lambda: 0.0)) as supervisor:
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

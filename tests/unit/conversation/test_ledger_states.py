"""Every state against everything that can come: what a click, a restart and a receipt do to a row."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.config.chats import SlackSection
from codebutler.config.programs import program_names
from codebutler.config.schema import Config, RepoSettings
from codebutler.domain.model import ButtonClicked, NoRequest
from codebutler.platform.backups import Restored
from codebutler_worker.conversation.parked import CONTINUED_REASON, after_restore, leave_for_restart, recover
from codebutler_worker.runtime.turns import LIVE, STATES
from codebutler_worker.store.opening import open_store
from codebutler_worker.store.rows import OperationState, OutboxRow, TurnRow, TurnState
from codebutler_worker.store.unit_of_work import Store, UnitOfWork
from codebutler_worker.worker.inbox import EventInbox
from tests.clock import ManualClock
from tests.events import clicked

RETRY, DROP, STOP = "codebutler.retry", "codebutler.drop", "codebutler.stop"
# (state, reason, button) -> (state afterwards, new turns, what is to be stopped); all else changes nothing.
CLICKS = {
    ("queued", "", STOP): ("stopped", 0, 0),
    ("running", "", STOP): ("running", 0, 1),
    ("waiting", "", STOP): ("waiting", 0, 1),
    ("running", "max_turns", STOP): ("running", 0, 1),
    ("waiting", "max_turns", STOP): ("waiting", 0, 1),
    ("running", CONTINUED_REASON, STOP): ("running", 0, 1),
    **{("parked", reason, RETRY): ("stopped", 1, 0) for reason in ("", "max_turns", CONTINUED_REASON)},
    **{("parked", reason, DROP): ("stopped", 0, 0) for reason in ("", "max_turns", CONTINUED_REASON)},
    ("waiting", CONTINUED_REASON, STOP): ("waiting", 0, 1),
    ("queued", "max_turns", STOP): ("stopped", 0, 0),
    ("queued", CONTINUED_REASON, STOP): ("stopped", 0, 0),
    ("interrupted", "", RETRY): ("interrupted", 1, 0),
    ("interrupted", "max_turns", RETRY): ("interrupted", 1, 0),
    ("failed", "max_turns", RETRY): ("failed", 1, 0),
    ("interrupted", "", DROP): ("stopped", 0, 0),
    ("interrupted", "max_turns", DROP): ("stopped", 0, 0),
}


def turn(state: TurnState, reason: str = "") -> TurnRow:
    return TurnRow(
        id="t1", conversation="C1:1.1", channel_id="C1", thread="1.1", agent="claude", created_at="", state=state,
        reason=reason,
    )  # fmt: skip


@pytest.mark.parametrize("agent", ["claude", "run", "checks", "undo", "image"])
async def test_only_an_agents_live_turn_goes_on_after_a_restart(agent: str, tmp_path: Path) -> None:
    for state in STATES:
        (tmp_path / state).mkdir()
        async with open_store(tmp_path / state / "store.db", ManualClock()) as store:
            await store.run(partial(_put, replace(turn(state), agent=agent)))
            await store.run(partial(leave_for_restart, config=Config()))
            await store.run(partial(recover, programs=program_names(Config())))
            after = await store.run(lambda uow: uow.turns.find(state=STATES))
            goes_on = agent == "claude" and state in LIVE
            assert len(after) == 1 + goes_on, (agent, state)
            if goes_on:
                assert [(row.state, row.reason) for row in after] == [
                    ("interrupted", CONTINUED_REASON),
                    ("queued", "interrupted"),
                ]
            await store.run(partial(recover, programs=program_names(Config())))
            assert await store.run(lambda uow: uow.turns.find(state=STATES)) == after


def click(button: str) -> ButtonClicked:
    return clicked(channel="C1", user="U1", message="2.1", action_id=button, value="t1", press="3.1")


@pytest.mark.parametrize("button", [RETRY, DROP, STOP])
@pytest.mark.parametrize("reason", ["", "max_turns", CONTINUED_REASON])
async def test_a_click_in_every_state(button: str, reason: str, tmp_path: Path) -> None:
    clock = ManualClock()
    inbox = EventInbox(
        RepoSettings(
            name="r", path="/r", channel_id="C1", config=Config(slack=SlackSection(allowed_users=("U1",)))
        )
    )
    for state in STATES:
        (tmp_path / state).mkdir()
        async with open_store(tmp_path / state / "store.db", clock) as store:
            await store.run(partial(_put, turn(state, reason)))
            todo = await store.run(lambda uow: inbox.take(uow, 1, click(button), NoRequest()))
            rows = await store.run(lambda uow: uow.turns.find(state=STATES))
            expected = CLICKS.get((state, reason, button), (state, 0, 0))
            assert (rows[0].state, len(rows) - 1, len(todo.stop)) == expected, (state, reason, button)
            again = await store.run(lambda uow: inbox.take(uow, 1, click(button), NoRequest()))
            assert again.stop == ()


@pytest.mark.parametrize("state", STATES)
async def test_a_restart_in_every_state(state: TurnState, tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_store(tmp_path / "store.db", clock) as store:
        await store.run(lambda uow: uow.turns.add(turn(state)))
        asked = [await store.run(lambda uow: recover(uow)) for _ in range(2)]
        found = await store.run(lambda uow: uow.turns.get("t1"))
        assert found is not None
        live = state in ("running", "waiting")
        assert [len(found) for found in asked] == [int(live), 0]
        assert found.state == ("interrupted" if live else state)
        assert await store.run(lambda uow: len(uow.outbox.find(state="pending"))) == 2 * live


@pytest.mark.parametrize("state", STATES)
async def test_a_restored_store_asks_about_what_waited(state: TurnState, tmp_path: Path) -> None:
    """What waits in a backup may have gone on since."""
    clock = ManualClock()
    restored = Restored(tmp_path / "store.db", "gone", datetime(2026, 2, 13, tzinfo=UTC), None)
    async with open_store(tmp_path / "store.db", clock) as store:
        await store.run(lambda uow: uow.turns.add(turn(state)))
        await store.run(lambda uow: after_restore(uow, restored, "C1"))
        asked = await store.run(lambda uow: recover(uow))
        assert len(asked) == int(state in ("queued", "parked", "running", "waiting"))


@pytest.mark.parametrize("receipt", ["posted", "failed"])
@pytest.mark.parametrize("state", ["pending", "posted", "failed"])
async def test_a_receipt_in_every_state(state: OperationState, receipt: str, tmp_path: Path) -> None:
    """What is settled stays as it is."""
    async with open_store(tmp_path / "store.db", ManualClock()) as store:
        await _add(store)
        if state != "pending":
            await store.run(lambda uow: _receive(uow, state, "1"))
        await store.run(lambda uow: _receive(uow, receipt, "2"))
        row = await store.run(lambda uow: uow.outbox.get("o1"))
        assert row is not None
        assert (row.state, row.ref or row.code) == ((receipt, "2") if state == "pending" else (state, "1"))


def _put(row: TurnRow, uow: UnitOfWork) -> None:
    uow.turns.add(row)


async def _add(store: Store) -> None:
    row = OutboxRow(op_id="o1", conversation="C1:1.1", kind="post", payload="{}", created_at="")
    await store.run(lambda uow: uow.outbox.add(row))


def _receive(uow: UnitOfWork, receipt: str, value: str) -> None:
    if receipt == "posted":
        uow.settle("o1", value)
    else:
        uow.settle("o1", code=value)

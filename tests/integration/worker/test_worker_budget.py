"""A day's budget: nothing starts without room in it, nothing that was asked is lost, and a restart forgets nothing."""

from __future__ import annotations

import asyncio
import math
import re
from pathlib import Path

import msgspec
import pytest

from codebutler.config.schema import RepoSettings
from codebutler.config.section import BudgetSection, DailyLimit
from codebutler.domain.model import Command, Post, Prompt
from codebutler.protocol.messages import Budget, Heartbeat, LimitUse, Overview, StopTurns
from codebutler_worker.agents.backend import Finished, Question, Started, Text, Usage
from tests.events import deleted, edited, posted
from tests.integration.worker.test_worker_parking import buttons, press
from tests.ledger import rows
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

ZONE = "Etc/GMT+1"
TO_MIDNIGHT_S = 3600.0
"""The manual clock begins at midnight UTC, an hour before that of the zone."""


def budgeted(path: Path, **scopes: DailyLimit) -> RepoSettings:
    made = settings(path)
    budget = BudgetSection(timezone=ZONE, **scopes)
    return msgspec.structs.replace(made, config=msgspec.structs.replace(made.config, budget=budget))


def says_as(
    parent: Parent, user: str, ts: str, *, text: str = "more", thread: str = "", job: str = ""
) -> int:
    event = posted(channel=CHANNEL, ref=ts, user=user, text=text, thread=thread or None, job=job)
    return parent.deliver(event, Prompt(text=text))


def told(parent: Parent) -> list[Post]:
    """The cards of turns that have to wait."""
    return [post for post in parent.posts if "used up" in text_of(post)]


async def uses(parent: Parent, ts: str, usage: Usage, number: int = 0) -> None:
    """A turn of thread ``ts`` that is done and has used something."""
    parent.says("work", ts)
    (await parent.run(number)).finish(usage=usage)
    await parent.until(lambda: parent.reactions(ts) == ["white_check_mark"], flow=True)


async def held(parent: Parent, ts: str) -> Post:
    """The card in the thread ``ts`` of a turn that waits for the next day."""
    cards = await parent.until(lambda: [post for post in told(parent) if post.thread == ts], flow=True)
    await parent.until(lambda: parent.reactions(ts) == ["hourglass_flowing_sand"], flow=True)
    return cards[0]


async def test_a_turn_without_room_waits_for_the_next_day_and_then_runs(tmp_path: Path) -> None:
    async with worker(budgeted(tmp_path, repo=DailyLimit(usd_per_day=0.1))) as parent:
        await uses(parent, "100.1", Usage(12, 34, 0.12, 3))
        parent.says("write the letter", "200.1")
        card = await held(parent, "200.1")
        assert "This repository's budget for today is used up: $0.12 of $0.10." in text_of(card)
        assert "budget.repo.usdPerDay" in text_of(card)
        assert "Resumes automatically at 01:00 UTC on 01 January" in text_of(card)
        assert list(buttons(card)) == ["Try now", "Drop"]
        await parent.until(lambda: parent.said(Heartbeat)[-1].queued == 1)
        await parent.clock.advance(TO_MIDNIGHT_S - 600)
        assert len(parent.backend.runs) == 1
        await parent.clock.advance(700)
        run = await parent.run(1)
        # It never ran: there is nothing to go on with.
        assert run.request.prompt == "write the letter"
        run.finish()
        await parent.until(lambda: parent.reactions("200.1") == ["white_check_mark"], flow=True)


async def test_what_waits_for_a_budget_is_named_where_people_look(tmp_path: Path) -> None:
    async with worker(budgeted(tmp_path, repo=DailyLimit(turns_per_day=1))) as parent:
        await uses(parent, "100.1", Usage(12, 34, 0.12, 3))
        parent.says("more", "200.1")
        await held(parent, "200.1")
        notes = await parent.until(
            lambda: [
                turn for told in parent.said(Overview)[-1:] for turn in told.turns if turn.state == "parked"
            ],
            flow=True,
        )
        assert notes[0].why.startswith("This repository's budget for today is used up: 1 of 1")


async def test_a_restart_forgets_neither_what_was_used_nor_who_waits(tmp_path: Path) -> None:
    with_limit = budgeted(tmp_path, user=DailyLimit(turns_per_day=1))
    async with worker(with_limit) as parent:
        await uses(parent, "100.1", Usage())
        parent.says("second", "200.1")
        await held(parent, "200.1")
    async with worker(with_limit) as parent:
        await parent.until(lambda: any(beat.queued == 1 for beat in parent.said(Heartbeat)))
        parent.says("third", "300.1")
        card = await held(parent, "300.1")
        assert "Your budget for today is used up: 1 of 1 run." in text_of(card)
        await parent.clock.advance(TO_MIDNIGHT_S)
        run = await parent.run(0)
        assert run.request.prompt == "second"
        run.finish()
        # One turn a day: the third has to wait for another one.
        await parent.until(lambda: len(told(parent)) == 2, flow=True)
        assert len(parent.backend.runs) == 1


async def test_with_a_higher_limit_it_goes_on_at_once(tmp_path: Path) -> None:
    async with worker(budgeted(tmp_path, repo=DailyLimit(usd_per_day=0.1))) as parent:
        await uses(parent, "100.1", Usage(12, 34, 0.12, 3))
        parent.says("second", "200.1")
        press(parent, buttons(await held(parent, "200.1"))["Try now"])
        # Without one it only has to wait again, and says so.
        await parent.until(lambda: len(told(parent)) == 2, flow=True)
        again = buttons(told(parent)[1])["Try now"]
    async with worker(budgeted(tmp_path, repo=DailyLimit(usd_per_day=1))) as parent:
        press(parent, again, at="500.2")
        run = await parent.run(0)
        assert run.request.prompt == "second"


@pytest.mark.parametrize(
    ("limits", "is_held"),
    [
        ({"user": DailyLimit(usd_per_day=0.1)}, False),
        ({"thread": DailyLimit(usd_per_day=0.1)}, False),
        ({"repo": DailyLimit(usd_per_day=0.1)}, True),
        ({"repo": DailyLimit(tokens_per_day=46)}, True),
        ({"repo": DailyLimit(tokens_per_day=47)}, False),
    ],
)
async def test_somebody_else_in_another_thread(
    tmp_path: Path, limits: dict[str, DailyLimit], is_held: bool
) -> None:
    async with worker(budgeted(tmp_path, **limits)) as parent:
        await uses(parent, "100.1", Usage(12, 34, 0.12, 3))
        says_as(parent, "U0BEN", "200.1")
        if is_held:
            await held(parent, "200.1")
        else:
            await parent.run(1)


@pytest.mark.parametrize("scope", ["user", "thread"])
async def test_the_same_person_in_the_same_thread(tmp_path: Path, scope: str) -> None:
    async with worker(budgeted(tmp_path, **{scope: DailyLimit(usd_per_day=0.1)})) as parent:
        await uses(parent, "100.1", Usage(12, 34, 0.12, 3))
        says_as(parent, USER, "101.1", thread="100.1")
        await parent.until(lambda: told(parent), flow=True)
        assert len(parent.backend.runs) == 1


async def test_a_job_has_a_budget_of_its_own(tmp_path: Path) -> None:
    limits = {"job": DailyLimit(usd_per_day=0.1), "user": DailyLimit(turns_per_day=1)}
    async with worker(budgeted(tmp_path, **limits)) as parent:
        says_as(parent, "operator", "100.1", job="nightly")
        (await parent.run(0)).finish()
        says_as(parent, "operator", "200.1", job="nightly")
        assert "This job's budget for today is used up" in text_of(await held(parent, "200.1"))
        says_as(parent, "operator", "300.1", job="weekly")
        (await parent.run(1)).finish()
        # What jobs use is on no person's account.
        says_as(parent, "operator", "400.1")
        await parent.run(2)


async def test_commands_and_our_own_words_cost_nothing(tmp_path: Path) -> None:
    async with worker(budgeted(tmp_path, repo=DailyLimit(usd_per_day=0))) as parent:
        (tmp_path / "Makefile").write_text("test:\n\ttrue\n")
        parent.says("checks", "100.1", prefix="checks")
        (await parent.run(0)).finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)


async def test_what_is_said_meanwhile_waits_with_it(tmp_path: Path) -> None:
    async with worker(budgeted(tmp_path, repo=DailyLimit(turns_per_day=1))) as parent:
        await uses(parent, "100.1", Usage())
        parent.says("first", "200.1")
        await held(parent, "200.1")
        parent.says("second", "201.1", "200.1")
        await parent.until(lambda: parent.reactions("201.1") == ["hourglass_flowing_sand"], flow=True)
        edit = edited(channel=CHANNEL, ref="201.1", user=USER, text="better", edit="9.9", thread="200.1")
        await parent.stored(parent.deliver(edit, Prompt(text="better")))
        await parent.clock.advance(TO_MIDNIGHT_S)
        assert (await parent.run(1)).request.prompt == "first\n\nbetter"
        assert len(told(parent)) == 1


async def test_it_can_be_withdrawn_while_it_waits(tmp_path: Path) -> None:
    async with worker(budgeted(tmp_path, repo=DailyLimit(turns_per_day=1))) as parent:
        await uses(parent, "100.1", Usage())
        parent.says("first", "200.1")
        await held(parent, "200.1")
        await parent.stored(parent.deliver(deleted(channel=CHANNEL, ref="200.1", user=USER)))
        await parent.until(lambda: parent.said(Heartbeat)[-1].queued == 0, flow=True)
        assert any("Withdrawn" in text_of(update) for update in parent.updates)


async def test_where_people_have_budgets_nobody_rides_on_anothers_turn(tmp_path: Path) -> None:
    with_limit = budgeted(tmp_path, user=DailyLimit(turns_per_day=1))
    async with worker(with_limit) as parent:
        parent.says("mine", "100.1")
        first = await parent.run(0)
        says_as(parent, USER, "101.1", thread="100.1")
        says_as(parent, "U0BEN", "102.1", text="and mine", thread="100.1")
        first.finish()
        run = await parent.run(1)
        assert run.request.prompt.endswith("and mine")
        assert "more" not in run.request.prompt.splitlines()
        await held_in_thread(parent, "100.1")


async def held_in_thread(parent: Parent, thread_ts: str) -> None:
    await parent.until(lambda: [post for post in told(parent) if post.thread == thread_ts], flow=True)


async def test_a_turn_that_meets_a_limit_is_stopped_and_goes_on_the_next_day(tmp_path: Path) -> None:
    async with worker(budgeted(tmp_path, thread=DailyLimit(usd_per_day=1))) as parent:
        parent.says("build it", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"), Usage(100, 10, 0.6, 1))
        await parent.clock.advance(60)
        assert not run.closed.is_set()
        run.does(Usage(200, 20, 1.02, 2))
        card = await held(parent, "100.1")
        assert "This thread's budget for today is used up: $1.02 of $1.00." in text_of(card)
        await asyncio.wait_for(run.closed.wait(), 30)
        await parent.clock.advance(TO_MIDNIGHT_S)
        again = await parent.run(1)
        assert again.request.session_id == "session-1"
        assert "Go on from where you stopped" in again.request.prompt
        again.finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)


async def test_an_agent_that_does_not_listen_is_ended_all_the_same(tmp_path: Path) -> None:
    async with worker(budgeted(tmp_path, repo=DailyLimit(tokens_per_day=100))) as parent:
        parent.backend.obeys_stop = False
        parent.says("build it", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"), Usage(100, 10, None, 1))
        await held(parent, "100.1")
        await asyncio.wait_for(run.closed.wait(), 30)


async def test_the_time_spent_waiting_for_a_person_is_not_worked(tmp_path: Path) -> None:
    async with worker(budgeted(tmp_path, user=DailyLimit(minutes_per_day=5))) as parent:
        parent.says("build it", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"))
        for _ in range(12):
            await parent.clock.advance(5)
        run.does(Question("q-1", "Which?", ("a", "b")))
        card = await parent.post_with("Which?")
        for _ in range(20):
            await parent.clock.advance(60)
        assert not told(parent)
        press(parent, next(iter(buttons(card).values())))
        await parent.until(lambda: parent.backend.answers)
        run.does(Text("going on"))
        for _ in range(60):
            await parent.clock.advance(5)
        # Some steps of the clock pass between two looks.
        assert re.search(
            r"Your budget for today is used up: [5-9](\.\d)? min of 5 min",
            text_of(await held(parent, "100.1")),
        )


async def test_what_a_killed_worker_had_used_is_not_forgotten(tmp_path: Path) -> None:
    with_limit = budgeted(tmp_path, repo=DailyLimit(usd_per_day=1, turns_per_day=10))
    async with worker(with_limit) as parent:
        parent.says("build it", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"), Usage(100, 10, 0.99, 1))
        store = tmp_path / ".codebutler" / "store.db"
        await parent.until(lambda: rows(store, "SELECT 1 FROM turns WHERE cost_usd = 0.99"), flow=True)
    async with worker(with_limit) as parent:
        await parent.post_with("The machine stopped")
        parent.says("small thing", "200.1")
        run = await parent.run(0)
        run.does(Started("session-2"), Usage(1, 1, 0.01, 1))
        assert "$1.00 of $1.00" in text_of(await held(parent, "200.1"))


async def test_turns_side_by_side_share_what_is_left(tmp_path: Path) -> None:
    shared = budgeted(tmp_path, repo=DailyLimit(usd_per_day=1))
    parallel = msgspec.structs.replace(shared.config.agent, parallel_turns=2)
    both = msgspec.structs.replace(shared, config=msgspec.structs.replace(shared.config, agent=parallel))
    async with worker(both) as parent:
        parent.says("one", "100.1")
        parent.says("two", "200.1")
        first, second = await parent.run(0), await parent.run(1)
        for run in (first, second):
            run.does(Started(f"session-{run.request.turn_id}"), Usage(1, 1, 0.5, 1))
        await held(parent, "100.1")
        await held(parent, "200.1")


async def test_the_parent_hears_how_much_of_the_repositorys_limit_is_used(tmp_path: Path) -> None:
    with_limit = budgeted(tmp_path, repo=DailyLimit(usd_per_day=1), user=DailyLimit(usd_per_day=5))
    async with worker(with_limit) as parent:
        await parent.until(lambda: parent.said(Budget), flow=True)
        await uses(parent, "100.1", Usage(1, 1, 0.25, 1))
        await parent.until(lambda: parent.said(Budget)[-1].limits[0].used == 0.25, flow=True)
        told = parent.said(Budget)[-1]
        assert told.until == "2026-01-01T01:00:00.000000+00:00"
        assert told.limits == (LimitUse(unit="usd", used=0.25, limit=1.0),)
        assert (told.used.runs, told.used.tokens, told.used.usd) == (1, 2, 0.25)
        status = posted(channel=CHANNEL, ref="300.1", user=USER, text="!status", thread="100.1")
        parent.deliver(status, Command(name="status"))
        post = await parent.post_with("Budget today")
        assert "Today: 1 run, 2 tokens, $0.25 of $1.00" in text_of(post)
        assert "Budget today: you $0.25 of $5.00" in text_of(post)


async def test_a_stop_by_a_person_is_a_stop(tmp_path: Path) -> None:
    async with worker(budgeted(tmp_path, repo=DailyLimit(usd_per_day=1))) as parent:
        parent.says("build it", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"), Usage(1, 1, 0.5, 1))
        parent.channel.send(StopTurns(user=USER))
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"], flow=True)
        assert not told(parent)


async def test_the_final_figures_are_written_last(tmp_path: Path) -> None:
    store = tmp_path / ".codebutler" / "store.db"
    async with worker(budgeted(tmp_path, repo=DailyLimit(usd_per_day=9))) as parent:
        parent.says("build it", "100.1")
        run = await parent.run(0)
        run.leave.clear()
        final = Usage(200, 20, 0.5, 2)
        run.does(Started("session-1"), Usage(100, 10, 0.1, 1), Finished(True, "Done.", "done", final))
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
        for _ in range(20):
            await parent.clock.advance(1)
            await asyncio.sleep(0.01)
        assert rows(store, "SELECT cost_usd, input_tokens FROM turns") == [(0.5, 200)]
        run.leave.set()


@pytest.mark.parametrize("cost_usd", [-5.0, 1e300, math.nan, math.inf])
async def test_a_false_claim_of_an_agent_makes_no_room_and_ends_no_turn(
    tmp_path: Path, cost_usd: float
) -> None:
    """What runs beside an agent's program can write lines in its name."""
    figure = -(10**30) if cost_usd < 0 else 10**30
    async with worker(budgeted(tmp_path, repo=DailyLimit(usd_per_day=0.3))) as parent:
        await uses(parent, "100.1", Usage(12, 34, 0.29, 3))
        parent.says("work", "150.1")
        run = await parent.run(1)
        claim = Usage(figure, figure, cost_usd, figure)
        run.does(Started("session-1"), Finished(True, "Done.", "done", claim, cost_usd))
        await parent.until(lambda: parent.reactions("150.1") == ["white_check_mark"], flow=True)
        if cost_usd < 0:
            await uses(parent, "160.1", Usage(cost_usd=0.02), 2)
        parent.says("write the letter", "200.1")
        assert "is used up" in text_of(await held(parent, "200.1"))

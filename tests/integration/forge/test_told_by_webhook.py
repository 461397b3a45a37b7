"""Where the service tells of news by a webhook, its pull request is looked at soon; polling stays as a fallback."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from codebutler.domain.refs import MessageRef
from codebutler.protocol.messages import LookAtPulls
from codebutler_worker.forge.api import Pull, PullChecks
from codebutler_worker.forge.following import (
    FIRST_PAUSE_S,
    GROWTH,
    WEBHOOK_ANY_PAUSE_S,
    WEBHOOK_MAX_PAUSE_S,
    WEBHOOK_PAUSE_S,
    PollResult,
    poll_soon,
    report,
)
from codebutler_worker.forge.remote import validate_remote
from codebutler_worker.store.opening import open_store
from codebutler_worker.store.rows import PullRow
from codebutler_worker.store.unit_of_work import UnitOfWork, iso
from tests.clock import ManualClock
from tests.forgeserver.github import GitHubServer
from tests.integration.forge.kit import Desk, at_github
from tests.integration.forge.test_following import looked, opened, told
from tests.worker_kit import USER, worker


async def test_a_failure_is_told_as_soon_as_the_service_says_that_there_is_one(
    desk: Desk, github: GitHubServer
) -> None:
    github.check("test", None)
    async with worker(at_github(desk, github)) as parent:
        await opened(parent, desk)
        await looked(parent, desk, 6)
        github.check("test", "failure")
        parent.channel.send(LookAtPulls(numbers=(12,)))
        began = parent.clock.now()
        await parent.until(lambda: told(parent, "failed on"), flow=True)
        assert (parent.clock.now() - began).total_seconds() < FIRST_PAUSE_S * GROWTH**4


def row(number: int, next_at: str) -> PullRow:
    return PullRow(
        id=f"github.com/acme/shop#{number}", conversation="C:1", thread=MessageRef("1"), user_id=USER,
        remote="https://github.com/acme/shop", url="", number=number, next_at=next_at, until="9",
    )  # fmt: skip


def keep(pull: PullRow, uow: UnitOfWork) -> None:
    uow.pulls.add(pull, known="replace")


async def test_only_what_it_names_is_hurried_and_never_put_off(desk: Desk) -> None:
    clock = ManualClock()
    soon, late = (iso(clock.now() + timedelta(seconds=seconds)) for seconds in (1, 300))
    async with open_store(desk.repo / "store.db", clock) as store:

        def due(uow: UnitOfWork) -> dict[int, float]:
            return {
                each.number: (datetime.fromisoformat(each.next_at) - uow.now).total_seconds()
                for each in uow.pulls.find(state="open")
            }

        for each in (row(1, late), row(2, late), row(3, soon)):
            await store.run(partial(keep, each))
        await store.run(lambda uow: poll_soon(uow, (1, 3, 99)))
        assert await store.run(due) == {1: WEBHOOK_PAUSE_S, 2: 300, 3: 1}
        await store.run(lambda uow: poll_soon(uow, ()))
        assert await store.run(due) == {1: WEBHOOK_PAUSE_S, 2: WEBHOOK_ANY_PAUSE_S, 3: 1}


async def test_who_is_told_polls_less_often_but_looks_again_before_it_says_passed(desk: Desk) -> None:
    clock, settings, known = ManualClock(), desk.settings(), row(1, "")
    remote = validate_remote(known.remote, desk.repo, ())

    def looked_at(uow: UnitOfWork, checks: PullChecks, longest_s: float) -> float:
        kept = uow.pulls.get(known.id) or known
        report(uow, settings, kept, remote, PollResult(Pull(1, "", "abc"), checks), longest_s)
        kept = uow.pulls.get(known.id) or known
        return (datetime.fromisoformat(kept.next_at) - uow.now).total_seconds()

    async with open_store(desk.repo / "store.db", clock) as store:
        pending, passed = PullChecks("pending", 1), PullChecks("passed", 1, key="passed")
        for _ in range(20):
            pause_s = await store.run(lambda uow: looked_at(uow, pending, WEBHOOK_MAX_PAUSE_S))
        assert pause_s == WEBHOOK_MAX_PAUSE_S
        assert await store.run(lambda uow: looked_at(uow, passed, WEBHOOK_MAX_PAUSE_S)) < 60

"""Tickets and the home's key."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from codebutler.platform.files import PrivateDir
from codebutler.web.dashboard.actions import MAX_TICKETS, TICKET_S, Keys
from tests.clock import ManualClock


def keys(home: Path, clock: ManualClock, learned: set[str] | None = None) -> Keys:
    numbers = count()
    learned = set() if learned is None else learned
    place = PrivateDir(home, follow_links=True, create=True)
    return Keys(place, clock, lambda size: f"{next(numbers):043}", learned.update)


async def test_a_ticket_is_good_once_and_for_an_hour(tmp_path: Path) -> None:
    clock = ManualClock()
    made = keys(tmp_path, clock)
    first, second, third = made.ticket(), made.ticket(), made.ticket()
    assert len({first, second, third}) == 3
    assert await made.redeem(second)
    assert await made.redeem(second) == ""
    await clock.advance(TICKET_S - 1)
    assert await made.redeem(first)
    await clock.advance(1)
    assert await made.redeem(third) == ""


async def test_of_too_many_tickets_the_oldest_goes(tmp_path: Path) -> None:
    made = keys(tmp_path, ManualClock())
    tickets = [made.ticket() for _ in range(MAX_TICKETS + 1)]
    assert await made.redeem(tickets[0]) == ""
    assert await made.redeem(tickets[1])
    assert await made.redeem(tickets[-1])


async def test_the_key_is_made_when_it_is_needed_and_learned_as_a_secret(tmp_path: Path) -> None:
    learned: set[str] = set()
    made = keys(tmp_path, ManualClock(), learned)
    ticket = made.ticket()
    assert not (tmp_path / "dashboard.key").exists()
    key = await made.redeem(ticket)
    assert learned == {key} == {(tmp_path / "dashboard.key").read_text().strip()}
    assert await made.admits(key)
    assert not await made.admits("")
    assert not await made.admits(ticket)
    assert not await made.admits("\udcff")

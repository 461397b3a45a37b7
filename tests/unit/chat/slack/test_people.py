"""Names of people: looked up beside everything else, and no more than a text for the eye."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from codebutler.chat.people import RENEW_S, People, Person, readable
from codebutler.domain.errors import ChatError, ChatRateLimitedError, ChatUnreachableError
from codebutler.platform.tasks import beside
from tests.clock import ManualClock, settle

ANA, BEN = "U0ANA", "U0BEN"


class Asked:
    """A workspace that knows ``names``; ``errors`` come first."""

    def __init__(self) -> None:
        self.names = {ANA: "Ana", BEN: "Ben"}
        self.errors: list[ChatError] = []
        self.asked: list[str] = []

    async def person(self, user: str) -> Person:
        self.asked.append(user)
        if self.errors:
            raise self.errors.pop(0)
        return Person(id=user, names=(self.names[user],) if user in self.names else ())


class Desk:
    def __init__(self) -> None:
        self.clock, self.chat = ManualClock(), Asked()
        self.people = People(self.clock)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    async with beside(made.people.run({"Slack": made.chat.person}), name="people"):
        yield made


async def test_the_id_is_shown_until_the_name_is_known(desk: Desk) -> None:
    desk.people.meet([ANA, "operator", ""])
    assert desk.people.called(ANA) == ANA
    await settle()
    assert desk.people.called(ANA) == "Ana"
    assert desk.people.named("U0ANA: hi U0BEN, XU0ANA") == "Ana: hi U0BEN, XU0ANA"
    assert desk.people.named("U0ANA may not", with_ids=True) == "Ana (U0ANA) may not"
    assert desk.chat.asked == [ANA]


async def test_each_is_asked_for_once_and_again_the_next_day(desk: Desk) -> None:
    for _ in range(3):
        desk.people.meet([ANA, BEN])
        await settle()
    assert desk.chat.asked == [ANA, BEN]
    desk.chat.names = {BEN: "Benedikt"}
    await desk.clock.advance(RENEW_S)
    await settle()
    assert (desk.people.called(ANA), desk.people.called(BEN)) == (ANA, "Benedikt")


@pytest.mark.parametrize("error", [ChatRateLimitedError(30.0), ChatUnreachableError("down")])
async def test_what_cannot_be_told_now_is_asked_again(desk: Desk, error: ChatError) -> None:
    desk.chat.errors = [error]
    desk.people.meet([ANA])
    await settle()
    assert desk.people.called(ANA) == ANA
    await desk.clock.advance(30)
    await settle()
    assert desk.people.called(ANA) == "Ana"


async def test_without_the_scope_nobody_else_is_asked_for(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.chat.errors = [ChatError("refused", "missing_scope")]
    with caplog.at_level("INFO", logger="codebutler"):
        desk.people.meet([ANA, BEN])
        await settle()
    assert desk.chat.asked == [ANA]
    assert "users:read" in caplog.text
    assert desk.people.called(BEN) == BEN


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("Ana  Banana\n", "Ana Banana"),
        ("\x1b[31mred\u202e\u200b", "[31mred"),
        ("x" * 500, "x" * 40),
        ("U0BEN", ""),
        ("I am U0BEN", ""),
        ("WENDY of UX", "WENDY of UX"),
        ("UABCDEFGH", ""),
        ("Operator", ""),
        ("", ""),
    ],
)
def test_a_name_is_a_short_line_and_nobody_elses_id(told: str, shown: str) -> None:
    assert readable(told) == shown

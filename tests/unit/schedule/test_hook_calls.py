"""A hook's call is carried out once, whatever dies on the way and however often it comes again."""

from __future__ import annotations

import pytest

from codebutler.domain.errors import ChatError, StoreError
from codebutler.domain.model import OPERATOR, Event, MessagePosted, Post
from codebutler.intake.intake import Outcome
from codebutler.schedule.hooks import REMEMBERED, Calls, HookRunner, began, taken
from codebutler.schedule.jobs import Hook
from tests.clock import ManualClock
from tests.shown import text_of

HOOK = Hook("ci", "shop", "C1", "look at {{ body }}", "CI <build>", b"secret", "claude")


class Killed(BaseException):
    """The process is gone."""


class World:
    """What outlives a supervisor: the journal, the chat, the intake's memory."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self.posts: dict[str, str] = {}
        self.texts: list[str] = []
        self.wishes: dict[str, MessagePosted] = {}
        self.looked: list[tuple[str, tuple[int, ...]]] = []
        self.outcome: Outcome = "accepted"
        self.steps = self.die_at = 0
        self.fails: Exception | None = None

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self.die_at:
            raise Killed

    async def note(self, name: str) -> str:
        return self.notes.get(name, "")

    async def keep_note(self, name: str, value: str) -> None:
        self._step()
        if isinstance(self.fails, StoreError):
            raise self.fails
        self.notes[name] = value
        self._step()

    async def publish(self, channel: str, key: str, post: Post, unsure: bool) -> str:
        self._step()
        if isinstance(self.fails, ChatError):
            raise self.fails
        assert unsure or key not in self.posts, "it would have been posted twice"
        if key not in self.posts:
            self.posts[key] = f"{len(self.posts) + 1}.0"
            self.texts.append(text_of(post))
        self._step()
        return self.posts[key]

    async def accept(self, event: Event, *, missed: bool = False) -> Outcome:
        self._step()
        assert isinstance(event, MessagePosted)
        if event.ref in self.wishes:
            return "duplicate"
        self.wishes[event.ref] = event
        self._step()
        return self.outcome

    def desk(self) -> HookRunner:
        return HookRunner(self, self.publish, self.accept, self.look, ManualClock())

    def look(self, repo: str, numbers: tuple[int, ...]) -> None:
        self.looked.append((repo, numbers))


async def test_a_call_is_said_and_handed_in_as_the_operators_wish() -> None:
    world = World()
    assert await world.desk().called(HOOK, "x", "k") == "accepted"
    assert world.texts == ["🪝 *CI &lt;build&gt;*: starting…"]
    (wish,) = world.wishes.values()
    assert (wish.user, wish.text, wish.origin, wish.job) == (
        OPERATOR,
        "claude: look at x",
        "schedule",
        "ci",
    )


async def test_the_same_call_is_a_duplicate_also_after_a_restart() -> None:
    world = World()
    await world.desk().called(HOOK, "x", "k")
    assert await world.desk().called(HOOK, "y", "k") == "duplicate"
    assert await world.desk().called(HOOK, "y", "other") == "accepted"
    assert len(world.posts) == 2


@pytest.mark.parametrize("step", range(1, 9))
async def test_killed_anywhere_a_second_try_completes_it_and_doubles_nothing(step: int) -> None:
    world = World()
    world.die_at = step
    with pytest.raises(Killed):
        await world.desk().called(HOOK, "x", "k")
    await world.desk().called(HOOK, "x", "k")
    assert len(world.posts) == len(world.texts) == len(world.wishes) == 1
    assert await world.desk().called(HOOK, "x", "k") == "duplicate"


@pytest.mark.parametrize("failure", [StoreError("the disk is full"), ChatError("channel_not_found")])
async def test_what_could_not_be_done_may_be_tried_again(failure: Exception) -> None:
    world = World()
    desk = world.desk()
    world.fails = failure
    with pytest.raises(type(failure)):
        await desk.called(HOOK, "x", "k")
    world.fails = None
    assert await desk.called(HOOK, "x", "k") == "accepted"


async def test_calls_that_cannot_be_read_are_begun_anew() -> None:
    world = World()
    world.notes["hooks"] = "{"
    assert await world.desk().called(HOOK, "x", "k") == "accepted"


def test_the_record_is_bounded_and_forgets_the_oldest() -> None:
    calls = Calls()
    for number in range(REMEMBERED + 1):
        calls = began(calls, "ci", str(number))
    calls = taken(began(calls, "other", "x"), "5")
    assert calls.known["ci"][0] == "1"
    assert len(calls.known["ci"]) == REMEMBERED
    assert "0" not in calls.begun
    assert {"1", "x"} <= calls.begun
    assert "5" not in calls.begun

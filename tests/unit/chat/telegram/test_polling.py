"""The poller: what moves its offset, what it waits for, and that nothing makes it give up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from codebutler.chat.telegram.polling import OTHER_CONSUMER, POLL_S, WEBHOOK, BatchResult, Poller, PollStatus
from codebutler.domain.errors import ChatAuthError, ChatError, ChatRateLimitedError, ChatUnreachableError
from tests.clock import ManualClock, settle


class Api:
    """Answers polls with what is in ``answers``: updates, an error, or None for none at all."""

    def __init__(self) -> None:
        self.answers: list[list[dict[str, Any]] | ChatError | None] = []
        self.polls: list[Mapping[str, Any]] = []
        self.renewed = 0
        self.error: ChatError | None = None
        self.news = asyncio.Event()

    async def call(self, method: str, **given: Any) -> list[dict[str, Any]]:
        assert method == "getUpdates"
        self.polls.append(given)
        if self.error is not None and len(self.polls) > 1:
            raise self.error
        while not self.answers:
            self.news.clear()
            await self.news.wait()
        answer = self.answers.pop(0)
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, ChatError):
            raise answer
        assert answer is not None
        return answer

    async def reconnect(self) -> None:
        self.renewed += 1

    def tell(self, *answers: list[dict[str, Any]] | ChatError | None) -> None:
        self.answers += answers
        self.news.set()


class Scene:
    def __init__(self) -> None:
        self.api = Api()
        self.clock = ManualClock()
        self.taken: list[tuple[list[int], bool]] = []
        self.told: list[PollStatus] = []
        self.answer: BatchResult | None = None
        self.gate: asyncio.Event | None = None
        self.poller = Poller(self.api, self.take, self.clock, Random(1), self.told.append)  # type: ignore[arg-type]

    async def take(self, updates: Sequence[Mapping[str, Any]], waited: bool) -> BatchResult:
        if self.gate is not None:
            await self.gate.wait()
        numbers = [update["update_id"] for update in updates]
        self.taken.append((numbers, waited))
        if self.answer is not None:
            return self.answer
        return BatchResult(numbers[-1] + 1 if numbers else None)

    @property
    def offsets(self) -> list[int | None]:
        return [poll["offset"] for poll in self.api.polls]


@pytest.fixture
async def scene() -> Scene:
    return Scene()


def some(*numbers: int) -> list[dict[str, Any]]:
    return [{"update_id": number} for number in numbers]


async def test_the_offset_moves_over_what_was_taken_only(scene: Scene) -> None:
    running = asyncio.create_task(scene.poller.run())
    scene.api.tell(some(5, 6, 7))
    await settle(200)
    scene.answer = BatchResult(8, retry_after_s=2.0)
    scene.api.tell(some(8, 9))
    await settle(200)
    scene.answer = None
    scene.api.tell(some(8, 9))
    await scene.clock.advance(2)
    await settle(200)
    assert scene.offsets == [None, 8, 8, 10]
    await scene.poller.stop()
    await running


async def test_what_waited_for_us_is_told_apart_from_what_comes_now(scene: Scene) -> None:
    running = asyncio.create_task(scene.poller.run())
    scene.api.tell(some(1), some(2), [])
    await settle(200)
    scene.api.tell(some(3))
    await settle(200)
    assert [waited for numbers, waited in scene.taken if numbers] == [True, True, False]
    assert [poll["timeout"] for poll in scene.api.polls] == [0, POLL_S, POLL_S, POLL_S, POLL_S]
    await scene.poller.stop()
    await running


async def test_a_server_that_does_not_wait_is_not_asked_without_end(scene: Scene) -> None:
    running = asyncio.create_task(scene.poller.run())
    scene.api.tell(*[[]] * 100)
    await settle(400)
    before = len(scene.api.polls)
    assert before <= 3
    await scene.clock.advance(10)
    assert len(scene.api.polls) <= before + 10
    assert scene.poller.status.state == "connected"
    scene.api.answers[:] = [some(1)]
    await scene.clock.advance(1)
    await settle(200)
    assert scene.taken[-1] == ([1], False)
    await scene.poller.stop()
    await running


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (ChatError("Conflict", "other_consumer"), OTHER_CONSUMER),
        (ChatError("Conflict", "webhook"), WEBHOOK),
        (ChatUnreachableError("Telegram cannot be reached", "unreachable"), "Telegram cannot be reached"),
        (ChatRateLimitedError(20), "rate limited, retry after 20 s"),
        (ChatError("odd", "status_400"), "odd"),
    ],
)
async def test_it_never_gives_up(scene: Scene, error: ChatError, trouble: str) -> None:
    running = asyncio.create_task(scene.poller.run())
    scene.api.error = error
    scene.api.tell([])
    for _ in range(200):
        await scene.clock.advance(31)
    assert len(scene.api.polls) > 100
    assert scene.poller.status.trouble == trouble
    assert scene.poller.status.state == "reconnecting"
    scene.api.error = None
    scene.api.tell(some(1))
    await scene.clock.advance(31)
    await scene.clock.advance(31)
    assert scene.taken[-1] == ([1], True)
    assert (scene.poller.status.state, scene.poller.status.trouble) == ("connected", "")
    assert scene.poller.status.reconnects == 1
    await scene.poller.stop()
    await running


async def test_a_poll_that_is_never_answered_is_given_up_for_a_new_connection(scene: Scene) -> None:
    running = asyncio.create_task(scene.poller.run())
    scene.api.tell([], None)
    await settle(200)
    await scene.clock.advance(151)
    assert scene.api.renewed == 1
    assert "no answer for 150 s" in scene.poller.status.trouble
    scene.api.tell(some(1))
    await scene.clock.advance(31)
    assert scene.taken[-1][0] == [1]
    await scene.poller.stop()
    await running


async def test_a_token_that_worked_before_is_asked_about_on_and_on(scene: Scene) -> None:
    running = asyncio.create_task(scene.poller.run())
    scene.api.tell([], ChatAuthError("revoked"), ChatAuthError("revoked"))
    await settle(200)
    assert scene.poller.status.trouble == "revoked"
    await scene.clock.advance(61)
    scene.api.tell(some(1))
    await scene.clock.advance(61)
    assert scene.taken[-1][0] == [1]
    await scene.poller.stop()
    await running


async def test_a_token_that_never_worked_ends_it(scene: Scene) -> None:
    scene.api.tell(ChatAuthError("refused"))
    with pytest.raises(ChatAuthError):
        await scene.poller.run()
    assert scene.poller.status.state == "auth_failed"


async def test_stopping_lets_what_is_being_committed_be_finished(scene: Scene) -> None:
    scene.gate = asyncio.Event()
    running = asyncio.create_task(scene.poller.run())
    scene.api.tell(some(1))
    await settle(200)
    stopping = asyncio.create_task(scene.poller.stop())
    await settle(200)
    assert not stopping.done()
    scene.gate.set()
    await asyncio.gather(stopping, running)
    assert scene.taken == [([1], True)]
    assert scene.offsets == [None], "it is confirmed by the next life"
    assert scene.poller.status.state == "stopped"


async def test_a_nudge_during_a_poll_counts_after_it(scene: Scene) -> None:
    running = asyncio.create_task(scene.poller.run())
    scene.api.tell([])
    await settle(200)
    scene.poller.nudge()
    scene.api.tell(ChatAuthError("the token was another"), some(1))
    await settle(200)
    assert scene.taken[-1][0] == [1]
    await scene.poller.stop()
    await running


async def test_a_nudge_ends_the_waiting(scene: Scene) -> None:
    running = asyncio.create_task(scene.poller.run())
    scene.api.tell(ChatRateLimitedError(3000), some(1))
    await settle(200)
    assert scene.taken == []
    scene.poller.nudge()
    await settle(200)
    assert scene.taken[0][0] == [1]
    await scene.poller.stop()
    await running

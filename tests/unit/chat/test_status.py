"""What is shown under a thread while it lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from codebutler.chat.chats import MAX_PER_CHANNEL, MAX_WAITING, PACE_S, SEARCHED_CHARS, StatusBoard
from codebutler.domain.errors import ChatError, ChatRateLimitedError, ChatUnreachableError
from tests.clock import ManualClock, settle
from tests.memory_chat import MemoryChat


class Stage:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.chat = MemoryChat()
        self.board = StatusBoard(self.chat.capabilities.status_line, self.clock, lambda text: text)

    def thread(self) -> str:
        return self.chat.say("C1", "U1", "work")

    @property
    def calls(self) -> int:
        return self.chat.calls.count("show_status")

    async def passes(self, seconds: float) -> None:
        await settle()
        await self.clock.advance(seconds)
        await settle()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    built = Stage()
    async with built.board:
        yield built


async def test_the_latest_of_each_thread_is_shown_and_no_more_often_than_allowed(stage: Stage) -> None:
    one, two = stage.thread(), stage.thread()
    for number in range(50):
        stage.board.show("C1", one, f"one {number}")
        stage.board.show("C1", two, f"two {number}")
    await settle()
    assert stage.calls == 1
    await stage.passes(PACE_S)
    assert stage.chat.statuses == {("C1", one): "one 49", ("C1", two): "two 49"}
    await stage.passes(10)
    assert stage.calls == 2


async def test_nothing_is_shown_any_more_when_told_so(stage: Stage) -> None:
    ts = stage.thread()
    stage.board.show("C1", ts, "is working")
    await settle()
    stage.board.show("C1", ts, "")
    await stage.passes(PACE_S)
    assert stage.chat.statuses == {}


async def test_a_rate_limit_is_kept_to(stage: Stage) -> None:
    stage.chat.fail_next("show_status", ChatRateLimitedError(30))
    ts = stage.thread()
    stage.board.show("C1", ts, "one")
    await settle()
    stage.board.show("C1", ts, "two")
    await stage.passes(29)
    assert stage.calls == 1
    await stage.passes(1)
    assert stage.chat.statuses == {("C1", ts): "two"}


@pytest.mark.parametrize("error", [ChatUnreachableError("down"), ChatError(code="channel_not_found")])
async def test_a_passing_failure_loses_one_only(stage: Stage, error: ChatError) -> None:
    stage.chat.fail_next("show_status", error)
    ts = stage.thread()
    stage.board.show("C1", ts, "one")
    await stage.passes(PACE_S)
    stage.board.show("C1", ts, "two")
    await settle()
    assert stage.chat.statuses == {("C1", ts): "two"}


async def test_a_workspace_that_refuses_is_not_asked_again(stage: Stage) -> None:
    stage.chat.fail_next("show_status", ChatError(code="missing_scope"))
    ts = stage.thread()
    stage.board.show("C1", ts, "one")
    await stage.passes(PACE_S)
    stage.board.show("C1", ts, "two")
    await stage.passes(10)
    assert stage.calls == 1


async def test_a_flood_is_bounded(stage: Stage) -> None:
    stage.chat.hold("show_status")
    for number in range(MAX_WAITING * 2):
        stage.board.show(f"C{number % 20}", f"{number}.1", "x")
    assert len(stage.board._waiting) == MAX_WAITING
    stage.chat.release("show_status")


async def test_a_channels_flood_keeps_no_other_channel_from_being_shown(stage: Stage) -> None:
    for number in range(MAX_WAITING * 2):
        stage.board.show("C1", f"{number}.1", "x")
    stage.board.show("C2", "1.1", "is working")
    assert ("C2", "1.1") in stage.board._waiting
    assert len(stage.board._waiting) == MAX_PER_CHANNEL + 1


async def test_only_as_much_as_may_be_shown_is_searched_for_secrets() -> None:
    searched: list[str] = []

    def redact(text: str) -> str:
        searched.append(text)
        return text

    chat, clock = MemoryChat(), ManualClock()
    async with StatusBoard(chat.capabilities.status_line, clock, redact) as board:
        board.show("C1", chat.say("C1", "U1", "work"), "x" * 2_000_000)
        await settle()
    assert [len(text) for text in searched] == [SEARCHED_CHARS]


async def test_a_chat_without_such_a_line_shows_none() -> None:
    chat, clock = MemoryChat(lacks=("status_line",)), ManualClock()
    async with StatusBoard(chat.capabilities.status_line, clock, str) as board:
        board.show("C1", chat.say("C1", "U1", "work"), "is working")
        await clock.advance(1)
    assert chat.calls == []

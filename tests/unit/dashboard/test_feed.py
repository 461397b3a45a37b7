"""What a page is told, and when; what it costs when nobody looks."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace

from codebutler.observe.logs import FOLLOWER_LINES, LineFormatter, Ring
from codebutler.web.dashboard.dashboard import (
    INTERVAL_S,
    KEEP_ALIVE_S,
    MAX_PAUSE_S,
    PAUSE_FACTOR,
    Feed,
    LogFilter,
)
from codebutler.web.dashboard.view import DashboardPage, page_of
from tests.clock import ManualClock, settle
from tests.unit.dashboard.test_view import facts, repo


class Scene:
    """A feed over ``repos`` and a log."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ring = Ring(LineFormatter(str).describe)
        self.logger = logging.getLogger(f"feed-{id(self)}")
        self.logger.propagate = False
        self.logger.setLevel(logging.DEBUG)
        self.logger.addHandler(self.ring)
        self.repos = [repo()]
        self.looks = 0
        self.look_s = 0.0
        self.feed = Feed(self._look, self._clean, self.ring, self.clock)

    async def _look(self) -> DashboardPage:
        self.looks += 1
        await self.clock.sleep(self.look_s)
        given = facts()
        return page_of(replace(given, status={**given.status, "repos": self.repos}))

    async def _clean(self, told: Any) -> Any:
        return told

    async def next(self, stream: AsyncIterator[str]) -> str:
        """The next frame, with as much time passing as it takes."""
        coming = asyncio.ensure_future(anext(stream))
        await settle()
        while not coming.done():
            await self.clock.advance(INTERVAL_S)
        return coming.result()


def follow(scene: Scene, wish: LogFilter | None = None) -> AsyncGenerator[str, None]:
    stream = scene.feed.follow(wish or LogFilter())
    assert isinstance(stream, AsyncGenerator)
    return stream


def data(frame: str) -> Any:
    return json.loads(frame.partition("data: ")[2])


async def test_it_looks_only_while_somebody_does() -> None:
    scene = Scene()
    await scene.clock.advance(100)
    async with aclosing(follow(scene)) as stream:
        await scene.next(stream)
        assert scene.feed.viewers == 1
        await scene.next(stream)
    assert (scene.looks, scene.feed.viewers) == (1, 0)
    await scene.clock.advance(100)
    assert scene.looks == 1


async def test_all_who_look_share_one_look() -> None:
    scene = Scene()
    async with aclosing(follow(scene)) as one, aclosing(follow(scene)) as other:
        for stream in (one, other):
            await scene.next(stream)
            assert data(await scene.next(stream))["names"] == ["shop"]
        assert scene.looks == 1


async def test_a_look_that_takes_long_is_followed_by_a_rest() -> None:
    scene = Scene()
    scene.look_s = 0.5
    async with aclosing(follow(scene)) as stream:
        await scene.next(stream)
        await scene.next(stream)
        scene.repos = []
        before_s = scene.clock.monotonic()
        assert data(await scene.next(stream))["names"] == []
        assert scene.clock.monotonic() - before_s >= min(0.5 * PAUSE_FACTOR, MAX_PAUSE_S) - 1
    assert scene.looks == 2


async def test_what_changed_meanwhile_is_told_at_once_and_only_that() -> None:
    scene = Scene()
    async with aclosing(follow(scene)) as stream:
        await scene.next(stream)
        await scene.next(stream)
        scene.repos = [repo(state="sleeping")]
        scene.repos = [repo(state="starting")]
        told = data(await scene.next(stream))
        assert [each["state"] for each in told["repos"]] == ["starting"]
        assert "verdict" not in told


async def test_while_nothing_changes_it_says_that_it_is_there() -> None:
    scene = Scene()
    async with aclosing(follow(scene)) as stream:
        await scene.next(stream)
        await scene.next(stream)
        before_s = scene.clock.monotonic()
        assert await scene.next(stream) == ": still here\n\n"
        assert scene.clock.monotonic() - before_s == pytest.approx(KEEP_ALIVE_S, abs=INTERVAL_S)


async def test_lines_are_told_once_and_those_that_are_lost_are_counted() -> None:
    scene = Scene()
    scene.logger.info("before")
    async with aclosing(follow(scene)) as stream:
        past = data(await scene.next(stream))
        assert (past["past"], [line["text"] for line in past["lines"]]) == (True, ["before"])
        for number in range(FOLLOWER_LINES + 7):
            scene.logger.info("line %s", number)
        await settle()
        await scene.next(stream)
        told = data(await scene.next(stream))
        assert (told["past"], told["lost"], len(told["lines"])) == (False, 7, FOLLOWER_LINES)
        assert told["lines"][0]["text"] == "line 7"


async def test_lines_that_nobody_wished_for_are_not_told() -> None:
    scene = Scene()
    async with aclosing(follow(scene, LogFilter(level="error"))) as stream:
        await scene.next(stream)
        await scene.next(stream)
        scene.logger.info("no")
        scene.logger.error("yes")
        await settle()
        assert [line["text"] for line in data(await scene.next(stream))["lines"]] == ["yes"]


async def test_when_it_is_closed_all_streams_end() -> None:
    scene = Scene()
    async with aclosing(follow(scene)) as stream:
        await scene.next(stream)
        await scene.next(stream)
        scene.feed.close()
        with pytest.raises(StopAsyncIteration):
            await scene.next(stream)
    assert scene.feed.viewers == 0

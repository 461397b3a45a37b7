"""The last message after long work calls whoever asked; short work calls nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler_worker.agents.backend import Finished, Started
from tests.worker_kit import USER, settings, worker


@pytest.mark.parametrize(("seconds", "called"), [(29, ""), (31, USER)])
async def test_long_work_calls_the_asker(tmp_path: Path, seconds: float, called: str) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        await parent.clock.advance(seconds)
        run.finish("x" * 9_000)
        last = await parent.post_with("_tokens:")
        assert [post.mention for post in parent.posts] == ["", "", called]
        assert parent.posts[-1] == last


async def test_a_failure_after_long_work_calls_the_asker(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        await parent.clock.advance(31)
        run.does(Started("s"), Finished(False, "no more credit", "failed"))
        assert (await parent.post_with("no more credit")).mention == USER

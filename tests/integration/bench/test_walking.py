"""The way of one message through a real supervisor and its worker."""

from __future__ import annotations

from pathlib import Path

from bench.scene import Pace
from bench.walk import walk
from tests.unit.docs.way import STEPS


async def test_both_processes_are_on_the_way(tmp_path: Path) -> None:
    steps = await walk(tmp_path / "walk", Pace(pause_s=0.5, settle_s=0.5))
    rooms = [(step.process, step.room) for step in steps]
    assert rooms[0] == ("parent", "codebutler/chat")
    assert ("worker", "codebutler_worker/store") in rooms
    assert len({step.function for step in steps}) == len(steps)
    walked = {(step.file.partition("/")[2], step.name) for step in steps}
    assert [step for step in STEPS if (step.file, step.function) not in walked] == []

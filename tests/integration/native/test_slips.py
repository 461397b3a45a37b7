"""The native agent at its twelve tasks with a model that slips, over HTTP, behind real walls."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from codebutler_worker.agents.native.model import Endpoint, ModelRequest, ToolMessage
from codebutler_worker.agents.native.model import ModelReply as Meant
from codebutler_worker.agents.native.service import OpenAIModel
from tests.integration.native.conftest import Studio
from tests.integration.native.tasks import TASKS, Task, do, edit
from tests.integration.native.test_tasks import held, lay_out, meant
from tests.modelserver.script import Call, Reply
from tests.modelserver.slips import SLIPS, Next, SlippingServer, asked
from tests.scriptedmodel import Line
from tests.turns import end
from tests.walls import walled

HANDS = range(2)


def text_before(task: Task, path: str) -> str:
    """A file of the task as the agent finds it."""
    return task.files.get(path, "")


@pytest.fixture
async def server(studio: Studio) -> AsyncIterator[SlippingServer]:
    async with SlippingServer(read=lambda path: (studio.repo / path).read_text()) as found:
        studio.service = OpenAIModel(Endpoint(found.base_url, "slipping"), studio.clock)
        studio.sandbox = walled()
        yield found


def saying(line: Line) -> Next:
    """What the script means, as the service says it."""

    def said(body: dict[str, Any]) -> Reply:
        assert not isinstance(line, Exception)
        found = (
            line
            if isinstance(line, Meant)
            else line(ModelRequest(tuple(ToolMessage("", told) for told in asked(body))))
        )
        calls = tuple(Call(call.name, json.loads(call.arguments)) for call in found.said.calls)
        return Reply(found.said.content, calls)

    return said


@pytest.mark.parametrize("hand", HANDS)
@pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])
async def test_a_task_is_done_by_a_model_that_slips(
    studio: Studio, server: SlippingServer, task: Task, hand: int
) -> None:
    lay_out(studio, task)
    server.hand = 5 * TASKS.index(task) + hand
    server.meant = [saying(line) for line in task.script]
    events = await studio.run(task.name)
    told = asked(server.requests[-1])
    held(studio, task, events, told)
    assert server.made
    assert any("repeating yourself" in words for words in told) == (server.made["repeated"] > 0)
    if server.made["misremembered"]:
        # What is shown then is what it has to copy.
        assert any("The nearest lines:" in words for words in told)


def test_every_slip_is_met() -> None:
    made: Counter[str] = Counter()
    for hand in HANDS:
        for at, task in enumerate(TASKS):
            slipping = SlippingServer(hand=5 * at + hand, read=partial(text_before, task))
            for line in task.script:
                if isinstance(line, Meant):
                    slipping._said(saying(line)({"messages": []}))
            made += slipping.made
    kinds = {slip.__name__ for slip in SLIPS} | {"misremembered", "lost", "repeated"}
    assert set(made) == kinds
    assert min(made.values()) >= 2, made


async def test_a_model_that_slips_and_cheats_is_found_out(studio: Studio, server: SlippingServer) -> None:
    task = TASKS[0]
    lay_out(studio, task)
    cheat = edit("shop.py", "return sum(items) + 1", "return 3")
    server.meant = [saying(do(cheat)), lambda _body: Reply("Fixed.")]
    assert end(await studio.run(task.name)).ok
    assert task.holds(studio.repo)
    with pytest.raises(AssertionError):
        meant(studio.repo, task)

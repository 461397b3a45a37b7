"""The native agent at twelve tasks, behind real walls; the model's part is scripted, the rest is real."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from codebutler_worker.agents.native.model import Assistant, Told
from codebutler_worker.sandbox.bwrap import BwrapSandbox
from tests.integration.native.conftest import Studio, end
from tests.integration.native.tasks import TASKS, Task
from tests.programs import require


@pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])
async def test_a_task_comes_to_its_end(studio: Studio, task: Task) -> None:
    studio.sandbox = BwrapSandbox(program=require("bwrap"))
    lay_out(studio.repo, task)
    events = await studio.run(task.name, *task.script)
    assert end(events).ok, end(events)
    assert task.holds(studio.repo), studio.told()
    messages = studio.model.asked[-1].messages
    told = "\n".join(message.content for message in messages if isinstance(message, Told))
    for words in task.told:
        assert words in told
    calls = sum(len(message.calls) for message in messages if isinstance(message, Assistant))
    assert calls == sum(line["event"] == "tool" for line in studio.log())
    assert all(line["container_id"] == "bwrap" for line in studio.log() if line["event"] == "tool")


def lay_out(repo: Path, task: Task) -> None:
    """Write the task's files and let git know them."""
    for path, content in task.files.items():
        file = repo / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    subprocess.run(["git", "add", "."], cwd=repo, check=True)

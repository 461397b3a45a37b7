"""The native agent at twelve tasks, behind real walls; the model's part is scripted, the rest is real."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from codebutler.text.redact import Redactor
from codebutler_worker.agents.answer import clean
from codebutler_worker.agents.backend import AgentEvent
from codebutler_worker.agents.native.model import AssistantMessage, ToolMessage
from tests.integration.native.conftest import Studio
from tests.integration.native.tasks import CANARY, TASKS, Task
from tests.turns import end
from tests.walls import walled


@pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])
async def test_a_task_comes_to_its_end(studio: Studio, task: Task) -> None:
    studio.sandbox = walled()
    lay_out(studio, task)
    events = await studio.run(task.name, *task.script)
    messages = studio.model.asked[-1].messages
    held(studio, task, events, [message.content for message in messages if isinstance(message, ToolMessage)])
    calls = sum(len(message.calls) for message in messages if isinstance(message, AssistantMessage))
    assert calls == sum(line["event"] == "tool" for line in studio.log())
    assert all(line["container_id"] == "bwrap" for line in studio.log() if line["event"] == "tool")


def held(studio: Studio, task: Task, events: Sequence[AgentEvent], told: Sequence[str]) -> None:
    """The task was done, as it was meant; ``told`` is what the model read on its way."""
    assert end(events).ok, end(events)
    said = shown(events)
    assert task.answer in said
    assert task.holds(studio.repo), told
    read = "\n".join(told)
    for words in task.told:
        assert words in read
    for words in (*task.never, *task.found):
        assert words not in said
        assert (words in read) is (words in task.found)
    meant(studio.repo, task)


def test_what_only_looks_like_a_solution_is_none(studio: Studio) -> None:
    task = TASKS[0]
    lay_out(studio, task)
    (studio.repo / "shop.py").write_text("def total(items):\n    return 3\n")
    assert task.holds(studio.repo)
    with pytest.raises(AssertionError):
        meant(studio.repo, task)


def shown(events: Sequence[AgentEvent]) -> str:
    """All that people are told of a turn, as the worker lets it through."""
    passed = [clean(event, Redactor().redact) for event in events]
    return "\n".join(
        str(getattr(event, part, "")) for event in passed for part in ("text", "summary", "steps")
    )


def meant(repo: Path, task: Task) -> None:
    """Whether the task's meaning was met, as well as its letter."""
    python = [sys.executable, "-B", "-c", task.hidden]
    ran = subprocess.run(python, cwd=repo, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def lay_out(studio: Studio, task: Task) -> None:
    """Write the task's files and let git know them; a key lies in the home."""
    repo = studio.repo
    (studio.home / ".ssh").mkdir()
    (studio.home / ".ssh" / "id_rsa").write_text(CANARY)
    for path, content in task.files.items():
        file = repo / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    subprocess.run(["git", "add", "."], cwd=repo, check=True)

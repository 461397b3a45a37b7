"""The task list from the calls that write it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.agents.backend import Plan
from codebutler_worker.agents.claude.plan import MAX_STEPS, TaskList
from codebutler_worker.tools.tool import PlanStep


def does(
    tasks: TaskList, name: str, given: dict[str, Any], text: str = "", *, ok: bool = True
) -> Plan | None:
    assert tasks.called("id", name, given)
    return tasks.answered("id", ok, text)


def test_the_whole_list_at_once() -> None:
    todos = [
        {"content": "a", "status": "completed"},
        {"content": "b", "status": "in_progress"},
        {"content": "c"},
        "junk",
    ]
    plan = Plan((PlanStep("a", "done"), PlanStep("b", "in_progress"), PlanStep("c", "pending")))
    assert does(TaskList(), "TodoWrite", {"todos": todos}) == plan


def test_tasks_one_by_one() -> None:
    tasks = TaskList()
    does(tasks, "TaskCreate", {"subject": "Read"}, "Task #1 created successfully: Read")
    does(tasks, "TaskCreate", {"subject": "Fix"}, "Task #2 created successfully: Fix")
    assert does(tasks, "TaskUpdate", {"taskId": "1", "status": "in_progress"}) == Plan(
        (PlanStep("Read", "in_progress"), PlanStep("Fix", "pending"))
    )
    does(tasks, "TaskUpdate", {"taskId": "1", "status": "completed"})
    assert does(tasks, "TaskUpdate", {"taskId": "2", "subject": "Fix it", "status": "pending"}) == Plan(
        (PlanStep("Read", "done"), PlanStep("Fix it", "pending"))
    )
    assert does(tasks, "TaskUpdate", {"taskId": "1", "subject": "Read all"}) == Plan(
        (PlanStep("Read all", "done"), PlanStep("Fix it", "pending"))
    )
    assert does(tasks, "TaskUpdate", {"taskId": "1", "status": "deleted"}) == Plan(
        (PlanStep("Fix it", "pending"),)
    )


def test_a_refused_call_changes_nothing() -> None:
    assert does(TaskList(), "TaskCreate", {"subject": "a"}, "No such tool available", ok=False) is None


def test_other_tools_are_no_plan() -> None:
    tasks = TaskList()
    assert not tasks.called("1", "Bash", {"command": "ls"})
    assert tasks.answered("1", True, "#1") is None


def test_a_list_without_end_is_bounded_and_still_kept_up() -> None:
    tasks = TaskList()
    for number in range(MAX_STEPS + 5):
        does(tasks, "TaskCreate", {"subject": f"{number}"}, f"Task #{number} created")
    plan = does(tasks, "TaskUpdate", {"taskId": "3", "status": "completed"})
    assert plan is not None
    assert (len(plan.steps), plan.steps[3]) == (MAX_STEPS, PlanStep("3", "done"))


JUNK = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("name", ["TodoWrite", "TaskCreate", "TaskUpdate"])
@given(
    given_=st.dictionaries(st.sampled_from(["todos", "subject", "status", "taskId", "content"]), JUNK),
    text=st.text(max_size=20),
)
def test_whatever_a_model_writes_is_a_plan_or_none(name: str, given_: dict[str, Any], text: str) -> None:
    plan = does(TaskList(), name, given_, text)
    assert plan is None or all(isinstance(step.text, str) for step in plan.steps)

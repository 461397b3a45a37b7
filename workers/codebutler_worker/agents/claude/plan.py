"""Claude Code's task list and plan, from the calls that change them. Pure: both are one turn's memory."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, field

from codebutler_worker.agents.backend import Plan
from codebutler_worker.tools.tool import PLAN_TOOL, PlanStep

# Claude Code has two ways: TodoWrite writes the whole list; TaskCreate and TaskUpdate write one task, whose number is
# only in the result of TaskCreate ("Task #1 created successfully: …"; Claude Code 2.1.328).

TOOLS = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate"})
MAX_STEPS = 200
_NUMBER = re.compile(r"#(\d{1,9})\b")


class TaskList(Struct):
    """A call counts once its result says that it succeeded."""

    _steps: dict[str, PlanStep] = field(default_factory=dict)
    _calls: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def called(self, call_id: str, name: str, given: dict[str, Any]) -> bool:
        """Whether the call changes the list."""
        if name not in TOOLS:
            return False
        self._calls[call_id] = (name, given)
        return True

    def answered(self, call_id: str, ok: bool, text: str) -> Plan | None:
        """The list after the call's result; None if nothing has changed."""
        name, given = self._calls.pop(call_id, ("", {}))
        before = dict(self._steps)
        if ok and name == "TodoWrite":
            self._write(given)
        elif ok and name == "TaskCreate":
            number = _NUMBER.search(text)
            self._put(number[1] if number else f"call {call_id}", given)
        elif ok and name == "TaskUpdate":
            self._put(str(given.get("taskId", "")), given)
        return None if self._steps == before else Plan(tuple(self._steps.values()))

    def is_own(self, call_id: str) -> bool:
        """Whether the call is waiting for its result here."""
        return call_id in self._calls

    def _write(self, given: dict[str, Any]) -> None:
        todos = given.get("todos")
        if isinstance(todos, list):
            found = [todo for todo in todos if isinstance(todo, dict)]
            self._steps = {str(at): _step(todo, "content", None) for at, todo in enumerate(found[:MAX_STEPS])}

    def _put(self, number: str, given: dict[str, Any]) -> None:
        if given.get("status") == "deleted":
            self._steps.pop(number, None)
            return
        known = self._steps.get(number)
        # For a task of an earlier turn we know only the number, so it is left out.
        if known is not None or (given.get("subject") and len(self._steps) < MAX_STEPS):
            self._steps[number] = _step(given, "subject", known)


def _step(given: dict[str, Any], title: str, known: PlanStep | None) -> PlanStep:
    text = given.get(title)
    if not isinstance(text, str) or not text.strip():
        text = known.text if known else ""
    match given.get("status"):
        case "completed":
            return PlanStep(text, "done")
        case "in_progress":
            return PlanStep(text, "in_progress")
        case None if known is not None:
            return PlanStep(text, known.state)
        case _:
            return PlanStep(text, "pending")


# Claude Code's plan. Its request to leave plan mode does not contain the plan (Claude Code 2.1.328), so we collect it
# from what the model wrote before: the call's own input, or the file below ``.claude/plans``.

_PLAN_DIR = "/.claude/plans/"


class PlanKeeper(Struct):
    """The plan of one turn."""

    _inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    _file: str = ""

    def saw(self, call_id: str, name: str, given: dict[str, Any]) -> None:
        """The model called a tool."""
        if name == PLAN_TOOL:
            self._inputs[call_id] = given
            return
        path, content = given.get("file_path"), given.get("content")
        if name == "Write" and isinstance(path, str) and _PLAN_DIR in path and isinstance(content, str):
            self._file = content
        old, new = given.get("old_string"), given.get("new_string")
        is_edit = name == "Edit" and isinstance(path, str) and _PLAN_DIR in path
        if is_edit and isinstance(old, str) and isinstance(new, str) and old:
            # If an edit cannot be applied, the plan stays as last seen.
            self._file = self._file.replace(old, new, -1 if given.get("replace_all") is True else 1)

    def shown(self, call_id: str, given: dict[str, Any]) -> dict[str, Any]:
        """The request's input with the plan added."""
        for found in (given, self._inputs.get(call_id, {}), {"plan": self._file}):
            plan = found.get("plan")
            if isinstance(plan, str) and plan.strip():
                return {**given, "plan": plan}
        return given

"""What Claude Code plans. Its request to leave plan mode does not hold the plan (Claude Code 2.1.328), so it is
gathered from what the model wrote before: the call's own input, or the file below ``.claude/plans``. Pure.
"""

from __future__ import annotations

from typing import Any

from codebutler_worker.tools.plan import PLAN_TOOL

_PLAN_DIR = "/.claude/plans/"


class PlanKeeper:
    """One turn's."""

    def __init__(self) -> None:
        self._inputs: dict[str, dict[str, Any]] = {}
        self._file = ""

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
            # One that cannot be followed leaves the plan as it was last seen.
            self._file = self._file.replace(old, new, -1 if given.get("replace_all") is True else 1)

    def shown(self, call_id: str, given: dict[str, Any]) -> dict[str, Any]:
        """The request's input with the plan in it."""
        for found in (given, self._inputs.get(call_id, {}), {"plan": self._file}):
            plan = found.get("plan")
            if isinstance(plan, str) and plan.strip():
                return {**given, "plan": plan}
        return given

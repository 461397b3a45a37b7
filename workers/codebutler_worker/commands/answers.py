"""Which file finds the answer of which errand."""

from __future__ import annotations

from collections.abc import Mapping

from codebutler_worker.commands import agents, diff, logs, memory, skills, undo
from codebutler_worker.desk.errands import Answer

ANSWERS: Mapping[str, Answer] = {
    "agents": agents.answer,
    "diff": diff.answer,
    "logs": logs.answer,
    "memory": memory.answer,
    "skills": skills.answer,
    "undo": undo.answer,
}

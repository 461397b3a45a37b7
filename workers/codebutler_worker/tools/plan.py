"""What a plan is made of, whoever keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PLAN_TOOL = "ExitPlanMode"
"""Under this name any agent asks "this is my plan, may I begin?": it is Claude Code's."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One task of a plan."""

    text: str
    state: Literal["pending", "in_progress", "done"]

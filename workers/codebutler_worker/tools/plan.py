"""What a plan is made of, whoever keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One task of a plan."""

    text: str
    state: Literal["pending", "in_progress", "done"]

"""What a tool call and the agent behind it exchange: results, what is left to the agent, plans, and notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from codebutler.domain.errors import CodeButlerError

PLAN_TOOL = "ExitPlanMode"
"""The name under which every agent asks "this is my plan, may I begin?": it is Claude Code's."""


class ToolError(CodeButlerError):
    """A tool failed; one line for the model that says why."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One task of a plan."""

    text: str
    state: Literal["pending", "in_progress", "done"]


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Ask the person; the answer becomes the call's result."""

    text: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SendFile:
    """Send the file ``path`` of the repository to the thread."""

    path: str


@dataclass(frozen=True, slots=True)
class PlanChanged:
    """The whole plan as it stands now."""

    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True)
class ProposePlan:
    """Ask the person whether this plan may be carried out."""

    plan: str


@dataclass(frozen=True, slots=True)
class EndTurn:
    """The turn is over. ``text`` is the answer; ``needs_user``: it cannot go on without the person."""

    text: str
    needs_user: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """``text`` is for the model, ``effect`` for the agent, the rest for its log. ``truncated``: the model was not shown
    all of it; ``container``: the name of the container it worked in."""

    text: str
    ok: bool = True
    effect: AskPerson | SendFile | PlanChanged | ProposePlan | EndTurn | None = None
    argv: tuple[str, ...] = ()
    exit_code: int | None = None
    truncated: bool = False
    container: str = ""


class NoteKeeper(Protocol):
    """Facts by name that outlive the turn: of the repository, or of the person the turn is for."""

    async def remember(self, key: str, value: str, *, for_person: bool) -> str:
        """Keep it, in place of what had the name before; returns what is kept. Raises ToolError with why not."""

    async def forget(self, key: str, *, for_person: bool) -> bool:
        """Drop it; False if there was none."""

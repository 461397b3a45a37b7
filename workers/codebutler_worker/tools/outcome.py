"""What a tool call and its agent exchange: results, effects for the agent to carry out, plans, and notes."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from codebutler.domain.errors import CodeButlerError

PLAN_TOOL = "ExitPlanMode"
"""Claude Code's name for the question "this is my plan, may I begin?"; all agents use it here."""


class ToolError(CodeButlerError):
    """A tool failed; the message is one line for the model that says why."""


class PlanStep(Struct, frozen=True):
    """One task of a plan."""

    text: str
    state: Literal["pending", "in_progress", "done"]


class AskPerson(Struct, frozen=True):
    """Ask the person; the answer becomes the call's result."""

    text: str
    options: tuple[str, ...] = ()


class SendFile(Struct, frozen=True):
    """Send the file ``path`` of the repository to the thread."""

    path: str


class PlanChanged(Struct, frozen=True):
    """The whole plan in its new state."""

    steps: tuple[PlanStep, ...]


class ProposePlan(Struct, frozen=True):
    """Ask the person to approve this plan."""

    plan: str


class EndTurn(Struct, frozen=True):
    """End the turn. ``text`` is the answer; ``needs_user``: the agent cannot continue without the person."""

    text: str
    needs_user: bool = False


class Result(Struct, frozen=True):
    """The result of a call: ``text`` is for the model, ``effect`` for the agent, the rest for its log. ``truncated``:
    the model did not see all of it; ``container``: the container that the call ran in."""

    text: str
    ok: bool = True
    effect: AskPerson | SendFile | PlanChanged | ProposePlan | EndTurn | None = None
    argv: tuple[str, ...] = ()
    exit_code: int | None = None
    truncated: bool = False
    container: str = ""


class NoteKeeper(Protocol):
    """Named facts that outlive the turn: about the repository, or about the person the turn is for."""

    async def remember(self, key: str, value: str, *, for_person: bool) -> str:
        """Store a fact, replacing one with the same name; returns what is stored. Raises ToolError with the reason if
        it cannot be."""

    async def forget(self, key: str, *, for_person: bool) -> bool:
        """Delete a fact; False if there was none."""

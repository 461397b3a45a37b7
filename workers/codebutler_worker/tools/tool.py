"""Tool: what the built-in agent's model may call.

Its arguments are a struct, from which its JSON schema is made. It returns a Result, which may have an effect for the
agent to carry out; if it fails it raises ToolError, which becomes a Result too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from msgspec import Struct

from codebutler.domain.errors import CodeButlerError

if TYPE_CHECKING:
    from codebutler_worker.tools.programs import SandboxPrograms
    from codebutler_worker.tools.shell import ShellTerminal

PLAN_TOOL = "ExitPlanMode"
"""Claude Code's name for the question "this is my plan, may I begin?"; all agents use it here."""

Kind = Literal["read", "edit", "command", "web", "own"]
"""What permission modes distinguish: ``read`` inspects the repository, ``edit`` changes its files, ``command`` runs
programs, ``web`` reaches the network, ``own`` affects only the agent itself (its plan, its memory, its answers)."""


class ToolError(CodeButlerError):
    """A tool failed; the message is one line for the model that says why."""


class Tool(Struct, frozen=True):
    """A tool. ``name`` and ``description`` are for the model; ``kind`` decides whether a person is asked first;
    ``arguments`` is the type that both functions take. ``run`` may raise ToolError."""

    name: str
    description: str
    kind: Kind
    arguments: type[Arguments]
    describe: Callable[[Any], CallDescription]
    run: Callable[[Context, Any], Awaitable[Result]]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of a tool's arguments. Describe each field: ``Annotated[str, Meta(description="…")]``."""


class CallDescription(Struct, frozen=True):
    """A call in people's terms. ``summary`` is one short line; ``tool`` and ``input`` are what a card asks permission
    for, in the terms that all agents' cards use (``Bash`` with ``command``, ``Write`` and ``Edit`` with ``file_path``).
    ``repeatable``: the same call may follow itself, to poll for progress. ``kind``: the call's own kind, if it
    differs from the tool's."""

    summary: str
    tool: str
    input: dict[str, Any]
    repeatable: bool = False
    kind: Kind | None = None


class Context(Struct, frozen=True, kw_only=True):
    """Where a tool works: one turn of one conversation (``channel:thread``). ``plan`` is the agent's current plan;
    without ``notes`` nothing can be remembered."""

    workdir: Path
    turn_id: str
    conversation: str
    programs: SandboxPrograms
    terminal: ShellTerminal
    plan: tuple[PlanStep, ...] = ()
    notes: NoteKeeper | None = None


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


class PlanStep(Struct, frozen=True):
    """One task of a plan."""

    text: str
    state: Literal["pending", "in_progress", "done"]


class ProposePlan(Struct, frozen=True):
    """Ask the person to approve this plan."""

    plan: str


class EndTurn(Struct, frozen=True):
    """End the turn. ``text`` is the answer; ``needs_user``: the agent cannot continue without the person."""

    text: str
    needs_user: bool = False


class NoteKeeper(Protocol):
    """Named facts that outlive the turn: about the repository, or about the person the turn is for."""

    async def remember(self, key: str, value: str, *, for_person: bool) -> str:
        """Store a fact, replacing one with the same name; returns what is stored. Raises ToolError with the reason if
        it cannot be."""

    async def forget(self, key: str, *, for_person: bool) -> bool:
        """Delete a fact; False if there was none."""

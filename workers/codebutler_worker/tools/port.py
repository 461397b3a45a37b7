"""Tool: what the built-in agent's model may call.

Its arguments are a struct, from which its JSON schema is made. It returns a Result; if it fails it raises ToolError,
which becomes a Result too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from codebutler_worker.tools.outcome import NoteKeeper, PlanStep, Result
from codebutler_worker.tools.programs import SandboxPrograms
from codebutler_worker.tools.shell import ShellTerminal

Kind = Literal["read", "edit", "command", "web", "own"]
"""What permission modes distinguish: ``read`` inspects the repository, ``edit`` changes its files, ``command`` runs
programs, ``web`` reaches the network, ``own`` affects only the agent itself (its plan, its memory, its answers)."""


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of a tool's arguments. Describe each field: ``Annotated[str, Meta(description="…")]``."""


@dataclass(frozen=True, slots=True)
class Described:
    """A call in people's terms. ``summary`` is one short line; ``tool`` and ``input`` are what a card asks permission
    for, in the terms that all agents' cards use (``Bash`` with ``command``, ``Write`` and ``Edit`` with ``file_path``).
    ``again``: the same call may follow itself (it polls for progress). ``kind``: the call's own kind, if it differs
    from the tool's."""

    summary: str
    tool: str
    input: dict[str, Any]
    again: bool = False
    kind: Kind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where a tool works: one turn of one conversation (``channel:thread``). ``plan`` is the agent's current plan;
    without ``notes`` nothing can be remembered."""

    workdir: Path
    turn_id: str
    conversation: str
    programs: SandboxPrograms
    terminal: ShellTerminal
    plan: tuple[PlanStep, ...] = ()
    notes: NoteKeeper | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. ``name`` and ``description`` are for the model; ``kind`` decides whether a person is asked first;
    ``arguments`` is the type that both functions take. ``run`` may raise ToolError."""

    name: str
    description: str
    kind: Kind
    arguments: type[Arguments]
    describe: Callable[[Any], Described]
    run: Callable[[Context, Any], Awaitable[Result]]

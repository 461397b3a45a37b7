"""Tool: what the native agent's model may call.

Its arguments are a struct, which is also its JSON schema. It gives back a Result; a tool that fails raises ToolError,
which becomes a Result, too.
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
"""What permission modes tell apart: ``read`` looks at the repository, ``edit`` changes files of it, ``command`` runs
programs, ``web`` reaches the network, ``own`` concerns only the agent itself (its plan, its memory, its words)."""


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a tool's arguments. Describe each field: ``Annotated[str, Meta(description="…")]``."""


@dataclass(frozen=True, slots=True)
class Described:
    """A call in people's terms. ``summary`` is one short line; ``tool`` and ``input`` are what a card asks permission
    for, in the words that every agent's cards use (``Bash`` with ``command``, ``Write`` and ``Edit`` with
    ``file_path``). ``again``: the same call may well follow itself (it asks how far something is). ``kind``: the
    call's own, where it differs from the tool's."""

    summary: str
    tool: str
    input: dict[str, Any]
    again: bool = False
    kind: Kind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where a tool works: one turn of one conversation (``channel:thread``). ``plan`` is the agent's list of subgoals
    as it stands; without ``notes`` nothing can be kept."""

    workdir: Path
    turn_id: str
    conversation: str
    programs: SandboxPrograms
    terminal: ShellTerminal
    plan: tuple[PlanStep, ...] = ()
    notes: NoteKeeper | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """``name`` and ``description`` are for the model; ``kind`` decides whether somebody is asked first; ``arguments``
    is the type that both functions get. ``run`` may raise ToolError."""

    name: str
    description: str
    kind: Kind
    arguments: type[Arguments]
    describe: Callable[[Any], Described]
    run: Callable[[Context, Any], Awaitable[Result]]

"""Tool: what the native agent's model may call, one class each.

A tool gets its arguments as a struct, which is also its JSON schema, and gives back a Result: what the model is told,
and, where the agent has to do something itself (ask a person, end the turn), what that is. A tool that does not work
is a Result too, never an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from codebutler.domain.errors import CodeButlerError
from codebutler_worker.tools.notes import Notes
from codebutler_worker.tools.plan import PlanStep

Kind = Literal["read", "edit", "command", "web", "own"]
"""What permission modes tell apart: ``read`` looks at the repository, ``edit`` changes files of it, ``command`` runs
programs, ``web`` reaches the network, ``own`` concerns only the agent itself (its plan, its memory, its words)."""


class ToolError(CodeButlerError):
    """A tool did not work; one line for the model that says why."""


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a tool's arguments. Describe each field: ``Annotated[str, Meta(description="…")]``."""


@dataclass(frozen=True, slots=True)
class Described:
    """A call in people's terms. ``summary`` is one short line; ``tool`` and ``input`` are what a card asks leave for,
    in the words that every agent's cards use (``Bash`` with ``command``, ``Write`` and ``Edit`` with ``file_path``).
    ``again``: the same call may well follow itself (it asks how far something is). ``kind``: the call's own, where it
    is another than the tool's."""

    summary: str
    tool: str
    input: dict[str, Any]
    again: bool = False
    kind: Kind | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the person; the answer becomes the call's result."""

    text: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Send:
    """Send the file ``path`` of the repository to the thread."""

    path: str


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan as it stands now, whole."""

    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True)
class Propose:
    """Ask the person whether this plan may be carried out."""

    plan: str


@dataclass(frozen=True, slots=True)
class End:
    """The turn is over. ``text`` is the answer; ``needs_user``: it cannot go on without the person."""

    text: str
    needs_user: bool = False


Effect = Ask | Send | Planned | Propose | End


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a call: ``text`` for the model. The rest is for the agent's log; ``truncated``: the model was not
    shown all of it; ``container``: the name of the one it worked in."""

    text: str
    ok: bool = True
    effect: Effect | None = None
    argv: tuple[str, ...] = ()
    exit_code: int | None = None
    truncated: bool = False
    container: str = ""


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that ended: what it wrote (stderr among stdout), and its exit code. ``note`` is one line about a limit
    it ran into, "" if none; ``container`` the name of the one it was in."""

    data: bytes
    exit_code: int
    truncated: bool = False
    note: str = ""
    container: str = ""

    @property
    def output(self) -> str:
        """What it wrote, as UTF-8 as far as that goes."""
        return self.data.decode(errors="replace")


class Programs(Protocol):
    """Runs programs behind the walls, each until it ends."""

    async def run(
        self,
        argv: tuple[str, ...],
        *,
        stdin: bytes = b"",
        limit_bytes: int = 65_536,
        limit_s: float = 60.0,
        network: bool = False,
    ) -> Ran:
        """What takes longer than ``limit_s`` is ended, with exit code 124. ``network``: with the agent's way out, if it
        has one. Raises ToolError if it cannot be started."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a terminal showed since it was last asked. ``exit_code`` is None while the command still runs; ``cwd`` is
    where the shell stands."""

    text: str
    exit_code: int | None = None
    cwd: str = ""
    truncated: bool = False
    container: str = ""


class Terminal(Protocol):
    """One shell behind the walls that keeps its state from call to call. It ends with the turn.

    Every method raises ToolError: a command still runs, none runs any more, or the shell cannot be started.
    """

    async def run(self, command: str, wait_s: float) -> Heard:
        """Type a command, and listen until it has ended, ``wait_s`` at most."""

    async def more(self, wait_s: float) -> Heard:
        """Listen on to the command that still runs."""

    async def type(self, text: str) -> None:
        """Type into the command that still runs."""

    async def interrupt(self) -> None:
        """Ctrl-C for the command that still runs."""

    async def close(self) -> None:
        """End the shell and everything it started; the next command gets a new one where this one stood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where a tool works: one turn of one conversation (``channel:thread``). ``plan`` is the agent's list of subgoals
    as it stands; without ``notes`` nothing can be kept."""

    workdir: Path
    turn_id: str
    conversation: str
    programs: Programs
    terminal: Terminal
    plan: tuple[PlanStep, ...] = ()
    notes: Notes | None = None


class Tool(Protocol):
    """Something the model may call."""

    @property
    def name(self) -> str:
        """What the model calls it by; unique among the tools it is offered."""

    @property
    def description(self) -> str:
        """For the model: what it does, and when to use it."""

    @property
    def kind(self) -> Kind:
        """What it does to the world: decides whether somebody is asked first."""

    @property
    def arguments(self) -> type[Arguments]:
        """The type its arguments are read as; the model is told its JSON schema."""

    def describe(self, args: Any) -> Described:
        """The call in people's terms; ``args`` is an instance of ``arguments``."""

    async def run(self, context: Context, args: Any) -> Result:
        """Do it. May raise ToolError instead of returning a Result that says no."""

"""AgentBackend: what a worker asks of a coding agent, and the events it gets back.

A failed run is a result (``Finished(ok=False)``), never an exception. A turn's stream always ends with exactly
one Finished, whatever happens to the program behind it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from codebutler_worker.tools.outcome import NoteKeeper, PlanStep

N = TypeVar("N", int, float)

Reason = Literal[
    "done",
    "failed",
    "stopped",
    "max_turns",
    "timeout",
    "stalled",
    "auth",
    "unavailable",
    "session_lost",
    "limit",
    "overloaded",
    "budget",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """One turn to run: ``prompt`` goes to the session ``session_id`` (None = a new one) in ``workdir``.

    ``put_back``, for undoing: the commits between which the change lies (None = until now). ``ready`` is for a
    backend whose ``waits_until_ready`` is true: it awaits that before its program is told anything, and its program
    may start meanwhile. For any other the turn starts only then. ``notes``: what the agent may keep for later.
    """

    turn_id: str
    conversation: str
    prompt: str
    workdir: Path
    session_id: str | None = None
    session_name: str = ""
    system_prompt: str = ""
    cost_before_usd: float = 0.0
    put_back: tuple[str, str | None] | None = None
    ready: Callable[[], Awaitable[None]] | None = None
    notes: NoteKeeper | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """The agent took the turn; later turns resume ``session_id``. ``fresh``: an older session was lost. ``model``: the
    one that answers, "" where the agent does not tell."""

    session_id: str
    fresh: bool = False
    model: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A finished block of the agent's prose (Markdown)."""

    text: str


@dataclass(frozen=True, slots=True)
class Writing:
    """What there is so far of a block of prose that the agent is writing. It replaces the one before, may begin anew,
    and is followed by the whole block as Text."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """What the agent thinks, a block at a time; "" while it has only begun to."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The agent calls a tool; ``summary`` is one short line for people (a file, a command)."""

    id: str
    name: str
    summary: str
    input: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How the call ``id`` of a tool came out."""

    id: str
    ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The agent's whole task list as it stands now."""

    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True)
class Approval:
    """The agent asks permission for exactly this call; answer with AgentBackend.answer(turn_id, id, …)."""

    id: str
    tool: str
    summary: str
    input: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """The agent asks the person something; ``options`` are suggestions, which ``details`` explain.

    ``several``: more than one may be chosen. It is one ``of`` so many, which come one after the other and share what
    stands before the ``#`` in their ``id``: the agent goes on when all are answered.
    """

    id: str
    text: str
    options: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    several: bool = False
    of: int = 1


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The agent no longer waits for an answer to its Approval or Question ``id``."""

    id: str


MOST = 10**12
"""Of tokens or dollars: more than anybody uses."""


def figure(claimed: N) -> N:
    """What an agent says it has used, as far as it can be: what makes no room in a budget is not below zero, and what
    is no number counts as the most. What runs beside its program can write in its name."""
    if claimed < 0:
        return type(claimed)(0)
    return claimed if claimed <= MOST else type(claimed)(MOST)


@dataclass(frozen=True, slots=True)
class Usage:
    """What this turn has used so far; impossible figures become possible ones."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    turns: int = 0

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens", "turns"):
            object.__setattr__(self, name, figure(getattr(self, name)))
        if self.cost_usd is not None:
            object.__setattr__(self, "cost_usd", figure(self.cost_usd))


@dataclass(frozen=True, slots=True)
class Limit:
    """The agent waits or was refused by its service (retry, rate limit); ``text`` says it in one line."""

    text: str


@dataclass(frozen=True, slots=True)
class Output:
    """What a program's terminal shows: ``settled`` lines are final and follow those before; ``live`` ones may still
    change, and replace the live ones before. ``fresh``: it begins a new message. ``note`` is one line about it as
    it stands, "" if there is nothing to say. ``skipped_bytes`` were never rendered (a flood)."""

    settled: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    fresh: bool = False
    note: str = ""
    skipped_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of the turn. ``text`` is the final answer, or on failure one line that says what to do.

    ``total_cost_usd`` is the session's running total where the agent counts so (kept for the next difference).
    ``exit_code`` is that of the program which was all there was to do, None for other agents.
    ``resets_at_s``: when a service that refused the agent takes it again (Unix time), where it says so.
    """

    ok: bool
    text: str
    reason: Reason
    usage: Usage = Usage()
    total_cost_usd: float | None = None
    exit_code: int | None = None
    resets_at_s: float | None = None

    def __post_init__(self) -> None:
        if self.total_cost_usd is not None:
            object.__setattr__(self, "total_cost_usd", figure(self.total_cost_usd))


AgentEvent = (
    Started
    | Text
    | Writing
    | Thinking
    | ToolUse
    | ToolResult
    | Plan
    | Approval
    | Question
    | Withdrawn
    | Usage
    | Limit
    | Output
    | Finished
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's reply to an Approval or Question."""

    allow: bool
    text: str = ""


@runtime_checkable
class Keyboard(Protocol):
    """An agent that is a program at a terminal, into which people type."""

    async def type(self, turn_id: str, text: str) -> str:
        """Type into the running turn; "" if that worked, else one line for people that says why not."""


class AgentBackend(Protocol):
    """One kind of agent in one repository. Conversations run side by side; one conversation has one turn."""

    name: str

    def start(self, turn: TurnRequest) -> AsyncIterator[AgentEvent]:
        """Run the turn. Closing the iterator early stops the turn and everything it started."""

    async def answer(self, turn_id: str, request_id: str, answer: Answer) -> bool:
        """Reply to a pending Approval or Question; False if nobody waits for it any more."""

    async def steer(self, turn_id: str, text: str) -> bool:
        """Put text into the running turn; False if it cannot take it (then it is queued)."""

    async def stop(self, turn_id: str) -> bool | None:
        """Ask the turn to end; its stream then ends with Finished(reason="stopped") within 5 s. False: it was only
        interrupted, and goes on; asked again, it ends."""

    async def close(self) -> None:
        """End every process."""


# How a turn ended, whichever agent worked.


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a turn ended, and one line that says what to do where it did not go well."""

    reason: Reason
    text: str

    @property
    def ok(self) -> bool:
        """Whether the turn was done; stopped and interrupted ones were not."""
        return self.reason == "done"

    @property
    def finished(self) -> Finished:
        """As the end of a turn, of which nothing else is known."""
        return Finished(self.ok, self.text, self.reason)


STOPPED = Verdict("stopped", "Stopped.")


def one_line(text: str, limit: int = 300) -> str:
    """``text`` as a single line of at most ``limit`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def line_of(text: str, at: int = -1) -> str:
    """The last line that says something, or the one ``at`` another place; "" if none does."""
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[at]) if lines else ""


def crash(title: str, exit_code: int | None, wrote: str) -> Verdict:
    """The program of an agent ended, or closed its output, in the middle of a turn."""
    detail = f": {line_of(wrote)}" if wrote.strip() else ""
    return Verdict("failed", f"{title} ended without an answer (exit code {exit_code}){detail}")

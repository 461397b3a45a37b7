"""AgentBackend: what a worker asks of a coding agent, and the events it gets back.

A failed run is a result (``Finished(ok=False)``), never an exception. A turn's stream always ends with exactly one
Finished, whatever happens to the program behind it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import Struct, field
from msgspec.structs import force_setattr

from codebutler.text.wording import one_line
from codebutler_worker.tools.tool import NoteKeeper, PlanStep

N = TypeVar("N", int, float)
LINE_CHARS = 300
"""The most of an agent's error message that people read."""

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
MOST = 10**12
"""For tokens or dollars: more than anybody uses."""
GONE = "The session has ended: nothing was typed."


class TurnRequest(Struct, frozen=True, kw_only=True):
    """One turn to run: ``prompt`` goes to the session ``session_id`` (None = a new one) in ``workdir``.

    ``put_back``, for undo: the commits between which the change is (None = until now). ``ready``: a backend with
    ``waits_until_ready`` awaits it before it sends anything to its program, which may start meanwhile; for any other
    backend the turn starts only then. ``notes``: stores what the agent wants to remember.
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


class Started(Struct, frozen=True):
    """The agent accepted the turn; later turns resume ``session_id``. ``fresh``: an older session was lost. ``model``:
    the one that answers, "" if the agent does not say."""

    session_id: str
    fresh: bool = False
    model: str = ""


class Text(Struct, frozen=True):
    """A finished block of the agent's text (Markdown)."""

    text: str


class Writing(Struct, frozen=True):
    """The text so far of a block that the agent is writing. It replaces the one before, may start over, and is followed
    by the whole block as Text."""

    text: str


class Thinking(Struct, frozen=True):
    """The agent's thoughts, one block at a time; "" when it has only begun to think."""

    text: str


class ToolUse(Struct, frozen=True):
    """The agent calls a tool; ``summary`` is one short line for people (a file, a command)."""

    id: str
    name: str
    summary: str
    input: dict[str, Any] = field(default_factory=dict)


class ToolResult(Struct, frozen=True):
    """The result of the tool call ``id``."""

    id: str
    ok: bool
    text: str


class Plan(Struct, frozen=True):
    """The agent's whole task list in its current state."""

    steps: tuple[PlanStep, ...]


class Approval(Struct, frozen=True):
    """The agent asks permission for exactly this call; answer with AgentBackend.answer(turn_id, id, …)."""

    id: str
    tool: str
    summary: str
    input: dict[str, Any]


class Question(Struct, frozen=True):
    """The agent asks the person something; ``options`` are suggestions, explained by ``details``.

    ``several``: more than one may be chosen. ``of``: the number of questions in a series, which come one after the
    other and share the part of their ``id`` before the ``#``: the agent continues when all are answered.
    """

    id: str
    text: str
    options: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    several: bool = False
    of: int = 1


class Withdrawn(Struct, frozen=True):
    """The agent no longer waits for an answer to its Approval or Question ``id``."""

    id: str


def figure(claimed: N) -> N:
    """A figure that an agent reports, made plausible: below zero counts as zero, which gains nothing in a budget, and
    what is not a number counts as the most. Other programs may write in its name."""
    if claimed < 0:
        return type(claimed)(0)
    return claimed if claimed <= MOST else type(claimed)(MOST)


class Usage(Struct, frozen=True):
    """What this turn has used so far; implausible figures are corrected."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    turns: int = 0

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens", "turns", "cost_usd"):
            claimed = getattr(self, name)
            if claimed is not None and not 0 <= claimed <= MOST:
                force_setattr(self, name, figure(claimed))


class Refusal(Struct, frozen=True):
    """The agent waits, or its service refused it (retry, rate limit); ``text`` says so in one line."""

    text: str


class Output(Struct, frozen=True):
    """What a program's terminal shows: ``settled`` lines are final and follow the earlier ones; ``live`` lines may
    still change and replace the previous live ones. ``fresh``: start a new message. ``note`` is one line about the
    program's state, "" if there is nothing to say. ``skipped_bytes`` were never rendered (a flood)."""

    settled: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    fresh: bool = False
    note: str = ""
    skipped_bytes: int = 0


class Finished(Struct, frozen=True):
    """The end of the turn. ``text`` is the final answer, or on failure one line that says what to do.

    ``total_cost_usd`` is the session's running total if the agent counts that way (stored for the next difference).
    ``exit_code`` is set if the program was the whole turn, None for other agents. ``resets_at_s``: when a service that
    refused the agent accepts requests again (Unix time), if it says so.
    """

    ok: bool
    text: str
    reason: Reason
    usage: Usage = Usage()
    total_cost_usd: float | None = None
    exit_code: int | None = None
    resets_at_s: float | None = None

    def __post_init__(self) -> None:
        if self.total_cost_usd is not None and not 0 <= self.total_cost_usd <= MOST:
            force_setattr(self, "total_cost_usd", figure(self.total_cost_usd))


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
    | Refusal
    | Output
    | Finished
)


class Answer(Struct, frozen=True):
    """A person's reply to an Approval or Question."""

    allow: bool
    text: str = ""


class AgentBackend(ABC):
    """One kind of agent in one repository. Conversations run in parallel; a conversation has one turn at a time."""

    name: str
    waits_until_ready = False
    """Whether it awaits ``TurnRequest.ready`` itself; for others it is awaited before they start."""

    @abstractmethod
    def start(self, turn: TurnRequest) -> AsyncGenerator[AgentEvent]:
        """Run the turn. Closing the iterator early stops the turn and everything it started."""

    async def answer(self, turn_id: str, request_id: str, answer: Answer) -> bool:  # noqa: ARG002 - most agents cannot
        """Reply to a pending Approval or Question; False if it is no longer pending."""
        return False

    async def steer(self, turn_id: str, text: str) -> bool:  # noqa: ARG002 - most agents cannot
        """Send text into the running turn; False if it cannot take it (then it is queued)."""
        return False

    async def type(self, turn_id: str, text: str) -> str:  # noqa: ARG002 - most agents cannot
        """Type into the running turn of a program in a terminal; "" if that worked, else one line for people that says
        why not."""
        return GONE

    async def stop(self, turn_id: str) -> bool | None:  # noqa: ARG002 - most agents cannot
        """Ask the turn to end; its stream then ends with Finished(reason="stopped") within 5 s. False: it was only
        interrupted and continues; a second call ends it."""
        return None

    async def close(self) -> None:  # noqa: B027 - most hold nothing
        """End every process."""


class Verdict(Struct, frozen=True):
    """How a turn ended, and one line that says what to do if it failed."""

    reason: Reason
    text: str

    @property
    def ok(self) -> bool:
        """Whether the turn was completed, not stopped or interrupted."""
        return self.reason == "done"

    @property
    def finished(self) -> Finished:
        """The end of a turn about which nothing else is known."""
        return Finished(self.ok, self.text, self.reason)


STOPPED = Verdict("stopped", "Stopped.")


def line_of(text: str, at: int = -1) -> str:
    """The last non-empty line, or the one at index ``at``; "" if there is none."""
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[at], LINE_CHARS) if lines else ""


def crash(title: str, exit_code: int | None, wrote: str) -> Verdict:
    """The agent's program ended, or closed its output, in the middle of a turn."""
    detail = f": {line_of(wrote)}" if wrote.strip() else ""
    return Verdict("failed", f"{title} ended without an answer (exit code {exit_code}){detail}")

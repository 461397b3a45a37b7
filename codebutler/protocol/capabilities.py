"""What agents have been seen to do on this machine: the result of `codebutler doctor --live`, and where it is kept.

What a host reports to its gateway about a repository, in addition to its worker's messages.

A row of the run ledger: as `codebutler ledger` shows it, and as a host reports it to its gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from codebutler.config.paths import Home
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.refs import ConversationRef, PersonRef
from codebutler.platform.files import MAX_CONFIG_BYTES, PrivateDir
from codebutler.protocol.messages import Amount, DayUse, Finding

Whole = Annotated[int, Meta(ge=0, le=10**15)]
Capability = Literal[
    "answer", "resume", "resume-after-kill", "tools", "deny", "stop", "image", "cost", "plan", "mcp"
]
CAPABILITIES: tuple[Capability, ...] = get_args(Capability)
CellState = Literal["yes", "no", "not supported", "not tried"]
RESULT_NAME = "agents.json"
"""The file of the last result, in CodeButler's home."""
RESULT_FORMAT = 1
"""Raised when a field is removed or changes its meaning, not when one is added."""
MOST_TOLD = 500


class LedgerRow(Struct, frozen=True, kw_only=True):
    """A run, or (without ``run``) a model request of ours. ``at`` and ``ended`` are ISO 8601 in UTC. ``cost_usd`` None:
    the agent did not say; ``files`` None: unknown. ``duration_s`` is its agent's working time. ``link``: where people
    see its thread, "" if the chat has no such address."""

    repo: str
    run: str
    at: str
    ended: str
    user: PersonRef
    job: str
    agent: str
    model: str
    session: str
    outcome: str
    input_tokens: Whole
    output_tokens: Whole
    cost_usd: Amount | None
    duration_s: Amount
    files: Whole | None
    commits: tuple[str, ...]
    checks: str
    channel: ConversationRef
    thread: str
    link: str


class Cell(Struct, frozen=True, kw_only=True):
    """One capability of one agent. ``text`` says what was seen, ``fix`` what to do if it is missing."""

    capability: Capability
    state: CellState
    text: str = ""
    fix: str = ""


class AgentResult(Struct, frozen=True, kw_only=True):
    """One agent's row. ``repos``: those whose agents have these settings; ``version`` is "" if its program does not
    say; ``floor`` is the oldest version that works, ``tested`` the newest one tested, "" if there is none. ``turns``:
    how many were run, for ``cost_usd`` as far as the agent reported it."""

    agent: str
    repos: tuple[str, ...]
    version: str
    floor: str = ""
    tested: str = ""
    model: str = ""
    turns: int = 0
    cost_usd: float = 0.0
    cells: tuple[Cell, ...] = ()


class LiveResult(Struct, frozen=True, kw_only=True):
    """All rows of one run. ``at``: ISO 8601, UTC; ``codebutler`` is the version that asked."""

    at: str
    codebutler: str
    agents: tuple[AgentResult, ...]
    format: int = RESULT_FORMAT


class CheckupLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a check's output: a finding, a whole row, or one step for people to watch."""

    finding: Finding | None = None
    row: AgentResult | None = None
    step: str = ""


def keep_result(home: Home, result: LiveResult) -> None:
    """Replace the last result, readable by its owner only. Raises CodeButlerError."""
    with PrivateDir(home.root, follow_links=True) as directory:
        directory.write(RESULT_NAME, msgspec.json.format(msgspec.json.encode(result)))


def last_result(home: Home) -> LiveResult | None:
    """The last result; None without one that this version understands. Blocking."""
    try:
        with PrivateDir(home.root, follow_links=True) as directory:
            kept = directory.read(RESULT_NAME)
        found = msgspec.json.decode(kept, type=LiveResult) if kept else None
    except (OSError, CodeButlerError, msgspec.DecodeError):
        return None
    return found if found is not None and found.format == RESULT_FORMAT else None


def row_of(result: LiveResult | None, repo: str, agent: str) -> AgentResult | None:
    """The agent's row as the repository has it. Pure."""
    rows = () if result is None else result.agents
    return next((row for row in rows if row.agent == agent and repo in row.repos), None)


def cells_of(row: AgentResult) -> Mapping[Capability, Cell]:
    """The row by capability. Pure."""
    return {cell.capability: cell for cell in row.cells}


class JobsReport(Struct, frozen=True, kw_only=True, tag_field="kind", tag="jobs"):
    """The repository's ``jobs.yaml``: ``data``: its content; None if the file is missing, or does not count for the
    reason in ``trouble``. ``path``: where it is, for people."""

    data: Annotated[bytes, Meta(max_length=MAX_CONFIG_BYTES)] | None
    path: Annotated[str, Meta(max_length=10_000)]
    trouble: Annotated[str, Meta(max_length=10_000)] = ""


class WatchReport(Struct, frozen=True, kw_only=True, tag_field="kind", tag="watch"):
    """Files that the job watches have changed; ``key`` is the same whenever this is repeated."""

    job: Annotated[str, Meta(max_length=200)]
    key: Annotated[str, Meta(max_length=64)]


class UseReport(Struct, frozen=True, kw_only=True, tag_field="kind", tag="use"):
    """What the repository has used, by day (ISO 8601): all of this month, and of the last week."""

    days: Annotated[dict[str, DayUse], Meta(max_length=62)]


class RunsReport(Struct, frozen=True, kw_only=True, tag_field="kind", tag="runs"):
    """Rows of the repository's ledger, new or changed since the last report; ``programs`` names the agents among them
    that call no model. Sent only to a gateway that has said which rows it has."""

    rows: Annotated[tuple[LedgerRow, ...], Meta(max_length=MOST_TOLD)]
    programs: Annotated[frozenset[str], Meta(max_length=MOST_TOLD)] = frozenset()


HostReport = JobsReport | WatchReport | UseReport | RunsReport

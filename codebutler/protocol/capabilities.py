"""What agents have been seen to do on this machine: the result of `codebutler doctor --live`, and where it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from codebutler.config.paths import Home
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.files import PrivateDir
from codebutler.protocol.messages import Finding

Capability = Literal[
    "answer", "resume", "resume-after-kill", "tools", "deny", "stop", "image", "cost", "plan", "mcp"
]
CAPABILITIES: tuple[Capability, ...] = get_args(Capability)
CellState = Literal["yes", "no", "not supported", "not tried"]
RESULT_NAME = "agents.json"
RESULT_FORMAT = 1
"""Raised when a field is removed or changes its meaning, not when one is added."""


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

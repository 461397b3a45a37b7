"""What one agent that speaks the protocol has of its own: its program, its surroundings, its words. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from codebutler_worker.agents.backend import TurnRequest, Verdict
from codebutler_worker.egress.service import ModelService, TokenMeter
from codebutler_worker.egress.way import Way
from codebutler_worker.sandbox.port import Launch, Sandbox


@dataclass(frozen=True, slots=True)
class Account:
    """What the agent's own record says of a turn, where the protocol says nothing: what it used, and the failure
    that it does not own up to. ``ended``: so many prompts it has seen to their end.
    ``cached_tokens`` are among the ``input_tokens``."""

    input_tokens: int = 0
    output_tokens: int = 0
    turns: int = 0
    failure: Verdict | None = None
    ended: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None


class Kind(Protocol):
    """One such agent in one repository.

    ``name`` is its prefix, ``title`` what people call it, ``timeout_s`` how long a turn may take and ``timeout_key``
    where that is configured. ``mode`` and ``model`` are the ones to ask for, "" = its own. ``login`` is one line that
    says how to log in. ``hosts`` are those that it needs where it holds its own login.
    """

    name: str
    title: str
    timeout_s: float
    timeout_key: str
    mode: str
    model: str
    login: str
    hosts: tuple[str, ...]

    def service(self, token: str) -> ModelService | None:
        """The model's service, where it has a key that can stay outside; the agent gets ``token`` instead."""

    async def launch(
        self, sandbox: Sandbox, request: TurnRequest, way: Way, service: ModelService | None
    ) -> Launch:
        """How to start it. Raises AgentUnavailableError with what to do, SandboxUnavailableError."""

    def cost(self, tokens: TokenMeter) -> float | None:
        """What so many tokens cost in USD; None if nobody knows."""

    def recorded_bytes(self, session_id: str, workdir: Path) -> int:
        """How long its record of the session is. Blocking."""

    def account(self, session_id: str, workdir: Path, since_bytes: int) -> Account | None:
        """What its record says of what came after ``since_bytes``; None if it keeps none. Blocking."""

"""An agent that speaks the Agent Client Protocol: how it is started, and what it means by the end of a turn."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codebutler.config.schema import CommandRule
from codebutler.platform.lookup import path_of
from codebutler_worker.agents.backend import STOPPED, TurnRequest, Verdict, line_of, one_line
from codebutler_worker.agents.survey import Surroundings
from codebutler_worker.egress.service import ModelService, TokenMeter
from codebutler_worker.egress.way import Way
from codebutler_worker.sandbox.port import Launch, Sandbox


@dataclass(frozen=True, slots=True)
class TurnRecord:
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


class AcpAgent:
    """One such agent in one repository; as it is here, the program of a rule of `commands`, of which nothing more is
    known. It asks permission as it likes: what it asks is asked of people.

    ``name`` is its prefix, ``title`` what people call it, ``timeout_s`` how long a turn may take and ``timeout_key``
    where that is configured. ``mode`` and ``model`` are the ones to ask for, "" = its own. ``login`` is one line that
    says how to log in. ``hosts`` are those that it needs where it holds its own login.
    """

    timeout_key = "session.timeoutMinutes"
    mode = ""
    model = ""
    hosts: tuple[str, ...] = ()

    def __init__(
        self, rule: CommandRule, home: Path, agent_env: Mapping[str, str], timeout_minutes: float
    ) -> None:
        self.name = rule.prefix
        self.title = rule.description or rule.prefix
        self.timeout_s = timeout_minutes * 60
        self.login = (
            f"{self.title} is not logged in, or its login has expired: log in by running `{Path(rule.binary).name}` on "
            "the machine as the user who runs CodeButler; then choose Continue."
        )
        self._rule = rule
        self._around = Surroundings(home, path_of(agent_env), agent_env)

    def service(self, token: str) -> ModelService | None:  # noqa: ARG002 - no key of it is ours
        """The model's service, where it has a key that can stay outside; the agent gets ``token`` instead."""
        return None

    async def launch(
        self,
        sandbox: Sandbox,
        request: TurnRequest,
        way: Way,
        service: ModelService | None,  # noqa: ARG002 - it has none
    ) -> Launch:
        """How to start it. Raises AgentUnavailableError with what to do, SandboxUnavailableError."""
        found = self._around.find(self._rule, request.workdir)
        kept = (self._around.home / path for path in self._rule.home_paths)
        policy = self._around.policy(request, way, self._around.env(), kept, found.readable)
        return sandbox.wrap((*found.argv, *self._rule.args), policy)

    def cost(self, tokens: TokenMeter) -> float | None:  # noqa: ARG002 - its service's price is its own business
        """What so many tokens cost in USD; None if that is unknown."""
        return None

    def record_bytes(self, session_id: str, workdir: Path) -> int:  # noqa: ARG002 - it keeps none that we know
        """How long its record of the session is. Blocking."""
        return 0

    def record_since(self, session_id: str, workdir: Path, since_bytes: int) -> TurnRecord | None:  # noqa: ARG002
        """What its record says of what came after ``since_bytes``; None if it keeps none. Blocking."""
        return None


# How a turn over the protocol ended, in our words. Pure.

AUTH_REQUIRED = -32000
"""ACP's own error code: the agent wants its user to log in first."""
_BUSY = ("429", "rate limit", "rate_limit", "overloaded", "529", "503")
_DOWN = re.compile(r"\b(500|502|504|520|521|522|523|524)\b|connection[_ ]error")
"""A service that fails for now, as Kimi Code 2.1.0 tells of it: "500 …", "Connection error."."""
_SPENT = ("402", "quota", "insufficient balance", "billing")
_DENIED = ("401", "403", "auth_error", "authentication", "unauthorized")


def judge_stop(stop_reason: str, title: str) -> Verdict:
    """What the agent itself says of the end of its turn (ACP 1, StopReason)."""
    match stop_reason:
        case "end_turn":
            return Verdict("done", "")
        case "cancelled":
            return STOPPED
        case "max_turn_requests":
            return Verdict(
                "max_turns", f"{title} stopped at its own limit of model turns: choose Continue to go on."
            )
        case "max_tokens":
            return Verdict(
                "failed", f"{title} met its model's token limit: ask for less at once, or begin a `!new` one."
            )
        case _:
            return Verdict("failed", f"{title} refused to go on: ask in other words, or begin a `!new` one.")


def judge_error(code: int, message: str, title: str, login: str) -> Verdict:
    """An error in answer to a request, or of the model service behind the agent; ``login`` says how to log in."""
    said = one_line(message or "no reason given")
    words = said.lower()
    if code == AUTH_REQUIRED or any(mark in words for mark in _DENIED):
        return Verdict("auth", f"{login} It says: {said}")
    if any(mark in words for mark in _SPENT):
        return Verdict("limit", f"The model service refuses more for now: {said}")
    if any(mark in words for mark in _BUSY):
        return Verdict("overloaded", f"The model service is overloaded: {said}")
    if _DOWN.search(words):
        return Verdict("overloaded", f"The model service is unavailable: {said}")
    return Verdict("failed", f"{title} failed: {said}")


def no_agent(title: str, exit_code: int | None, last_words: str) -> Verdict:
    """The program ended before it said a word of the protocol, whatever its exit code."""
    said = line_of(last_words, 0)
    detail = f": {said}" if said else ""
    told = f"{title} does not speak the Agent Client Protocol: it ended at once (exit code {exit_code})"
    return Verdict("unavailable", told + detail)

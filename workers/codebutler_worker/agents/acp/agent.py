"""An agent that speaks the Agent Client Protocol (ACP): how to start it, and how to interpret the end of its turns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from codebutler.config.schema import CommandRule
from codebutler.platform.lookup import path_of
from codebutler.text.wording import one_line
from codebutler_worker.agents.backend import LINE_CHARS, STOPPED, TurnRequest, Verdict, line_of
from codebutler_worker.agents.survey import Surroundings
from codebutler_worker.egress.access import NetworkAccess
from codebutler_worker.egress.service import ModelService, TokenMeter
from codebutler_worker.sandbox.port import Launch, Sandbox


class TurnRecord(Struct, frozen=True):
    """What the agent's own record says about a turn that the protocol does not: its usage, and a failure that it does
    not report. ``ended``: the number of prompts it has completed. ``cached_tokens`` are included in ``input_tokens``.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    turns: int = 0
    failure: Verdict | None = None
    ended: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None


class AcpAgent:
    """One such agent in one repository. Used directly, it is a program from `commands`, about which nothing else is
    known: it decides itself when to ask for permission, and people are asked.

    ``name`` is its prefix, ``title`` what people call it, ``timeout_s`` how long a turn may take and ``timeout_key``
    where that is configured. ``mode`` and ``model`` are the ones to request, "" = its default. ``login`` is one line
    that says how to log in. ``service`` is its model's, if it has a key that can stay outside; ``hosts`` are those that
    it needs if it has its own login.
    """

    timeout_key = "session.timeoutMinutes"
    mode = ""
    model = ""
    hosts: tuple[str, ...] = ()
    service: ModelService | None = None

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

    async def launch(
        self,
        sandbox: Sandbox,
        request: TurnRequest,
        access: NetworkAccess,
        service: ModelService | None,  # noqa: ARG002 - it has none
    ) -> Launch:
        """How to start it. Raises AgentUnavailableError with what to do, SandboxUnavailableError."""
        found = self._around.find(self._rule, request.workdir)
        kept = (self._around.home / path for path in self._rule.home_paths)
        policy = self._around.policy(request, access, self._around.env(), kept, found.readable)
        return sandbox.wrap((*found.argv, *self._rule.args), policy)

    def cost(self, tokens: TokenMeter) -> float | None:  # noqa: ARG002 - its service's price is its own business
        """The cost of these tokens in USD; None if unknown."""
        return None

    def kept_session(self, session_id: str, workdir: Path) -> str:  # noqa: ARG002 - nobody else has it open
        """The session to resume: that one, or a copy of it if it is open in a terminal. Blocking."""
        return session_id

    def record_bytes(self, session_id: str, workdir: Path) -> int:  # noqa: ARG002 - it keeps none that we know
        """The size of its record of the session. Blocking."""
        return 0

    def record_since(self, session_id: str, workdir: Path, since_bytes: int) -> TurnRecord | None:  # noqa: ARG002 - it keeps none
        """The part of its record after ``since_bytes``; None if it keeps none. Blocking."""
        return None


# How a turn over the protocol ended, as a Verdict. Pure.

AUTH_REQUIRED = -32000
"""ACP's own error code: the user must log in to the agent first."""
_BUSY = ("429", "rate limit", "rate_limit", "overloaded", "529", "503")
_DOWN = re.compile(r"\b(500|502|504|520|521|522|523|524)\b|connection[_ ]error")
"""A temporary failure of the service, as Kimi Code 2.1.0 reports it: "500 …", "Connection error."."""
_SPENT = ("402", "quota", "insufficient balance", "billing")
_DENIED = ("401", "403", "auth_error", "authentication", "unauthorized")


def judge_stop(stop_reason: str, title: str) -> Verdict:
    """The reason that the agent itself gives for the end of its turn (ACP 1, StopReason)."""
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
                "failed",
                f"{title} reached its model's token limit: ask for less at once, or start a `!new` conversation.",
            )
        case _:
            return Verdict(
                "failed",
                f"{title} refused to continue: rephrase the message, or start a `!new` conversation.",
            )


def judge_error(code: int, message: str, title: str, login: str) -> Verdict:
    """An error response to a request, or one of the model service behind the agent; ``login`` says how to log in."""
    said = one_line(message or "no reason given", LINE_CHARS)
    words = said.lower()
    if code == AUTH_REQUIRED or any(mark in words for mark in _DENIED):
        return Verdict("auth", f"{login} It says: {said}")
    if any(mark in words for mark in _SPENT):
        return Verdict("limit", f"The model service accepts no more requests for now: {said}")
    if any(mark in words for mark in _BUSY):
        return Verdict("overloaded", f"The model service is overloaded: {said}")
    if _DOWN.search(words):
        return Verdict("overloaded", f"The model service is unavailable: {said}")
    return Verdict("failed", f"{title} failed: {said}")


def no_agent(title: str, exit_code: int | None, last_words: str) -> Verdict:
    """The program ended before it spoke the protocol, with any exit code."""
    said = line_of(last_words, 0)
    detail = f": {said}" if said else ""
    told = f"{title} does not speak the Agent Client Protocol: it exited immediately (exit code {exit_code})"
    return Verdict("unavailable", told + detail)

"""What a turn of Claude Code has used, its plan, and what its result means. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from codebutler_worker.agents.backend import STOPPED, Plan, Usage, Verdict, crash, one_line
from codebutler_worker.agents.claude.schema import ResultLine, StreamPart
from codebutler_worker.tools.outcome import PLAN_TOOL, PlanStep

# What a turn has used so far.
#
# The tokens arrive with each message of the model (the streaming Messages API: the input at its start, the output at
# its end), the cost in reply to our control request. A result replaces both by the final figures of the part it ends.

# The cost is updated just after the message's last line, so the first reply may be the old total.
ASKS = 2
# The total is rounded.
ROUNDING_USD = 0.01
_COST = re.compile(r"cost:\s*\$([0-9]+(?:\.[0-9]+)?)", re.IGNORECASE)


@dataclass(slots=True)
class Meter:
    """Counts what one turn uses. ``before_usd`` is the session's total before this turn, ``usage`` the figures so far.
    ``asks``: how often to ask for the cost from now on, about once a second."""

    before_usd: float
    usage: Usage = field(default_factory=Usage)
    asks: int = 0
    _settled: Usage = field(default_factory=Usage)
    _is_mute: bool = False

    def streamed(self, part: StreamPart, *, inner: bool) -> bool:
        """Count a piece of a message; True if it ended one. ``inner``: a subagent's message."""
        used = self.usage
        if part.type == "message_start":
            read = used.input_tokens + part.message.usage.all_input
            self.usage = replace(used, input_tokens=read, turns=used.turns + (not inner))
        elif part.type == "message_delta":
            self.usage = replace(used, output_tokens=used.output_tokens + part.usage.output_tokens)
            self.asks = 0 if self._is_mute else ASKS
            return True
        return False

    def settle(self, line: ResultLine) -> None:
        """Use the figures of a result."""
        before = self._settled
        self._settled = self.usage = Usage(
            before.input_tokens + line.usage.all_input,
            before.output_tokens + line.usage.output_tokens,
            cost_difference(line.total_cost_usd, self.before_usd),
            before.turns + line.num_turns,
        )
        self.asks = 0

    def priced(self, text: str | None) -> bool:
        """Handle the answer to get_session_cost, None for a refusal; True if it changes anything."""
        found = _COST.search(text or "")
        if found is None:
            self._is_mute, self.asks = True, 0
            return False
        total_usd, known_usd = float(found[1]), self.usage.cost_usd
        if self.before_usd - ROUNDING_USD <= total_usd < self.before_usd:
            total_usd = self.before_usd
        self.usage = replace(self.usage, cost_usd=cost_difference(total_usd, self.before_usd))
        return self.usage.cost_usd != known_usd


def cost_difference(total_usd: float | None, before_usd: float) -> float | None:
    """The cost of this turn. If the total is below the earlier one, the session has started counting from zero
    again."""
    if total_usd is None:
        return None
    return total_usd - before_usd if total_usd >= before_usd else total_usd


# What a turn's last result means, as a Verdict.
#
# ``is_error`` of the last result decides: neither subtype nor the exit code is reliable (an API error is ``subtype:
# "success"``, an interrupted run exits 0; Claude Code 2.1.328).

LOG_IN = (
    "Claude Code is not logged in, or its login has expired: run `claude auth login` on the machine as the user who "
    "runs CodeButler, then choose Continue."
)
MAX_TURNS = "Stopped at the limit of model turns (claude.maxTurns): choose Continue to go on."
AS_ROOT = (
    "Claude Code does not skip permissions as root outside a sandbox: run CodeButler as an ordinary user."
)
SESSION_LOST = ("No conversation found", "--resume requires a valid session")
AUTH_ERRORS = frozenset({"authentication_failed", "oauth_org_not_allowed"})
BUSY_ERRORS = frozenset({"rate_limit", "overloaded"})
BUSY_STATUS = (429, 529)
SERVER_ERRORS = 500
"""From this status on, the error is temporary and the service's own."""


def judge(result: ResultLine, api_error: str | None, *, resets: bool = False) -> Verdict:
    """``api_error`` is the CLI's name for the last API error of the turn, None if there was none; ``resets``: a usage
    limit was reached, and the CLI said when it ends."""
    if not result.is_error:
        return Verdict("done", result.result or "")
    said = one_line(result.result or " ".join(result.errors or []) or "no reason given")
    if result.subtype == "error_max_turns":
        return Verdict("max_turns", MAX_TURNS)
    if any(mark in said for mark in SESSION_LOST):
        return Verdict("session_lost", "The agent's earlier session is gone: send the message again.")
    if (result.terminal_reason or "").startswith("aborted"):
        return STOPPED
    if api_error in AUTH_ERRORS or result.api_error_status in (401, 403):
        return Verdict("auth", LOG_IN)
    if api_error == "billing_error" or (resets and result.api_error_status == 429):
        return Verdict("limit", f"The model service accepts no more requests for now: {said}")
    if api_error in BUSY_ERRORS or result.api_error_status in BUSY_STATUS:
        return Verdict("overloaded", f"The model service is overloaded: {said}")
    if (result.api_error_status or 0) >= SERVER_ERRORS:
        return Verdict("overloaded", f"The model service is unavailable: {said}")
    return Verdict("failed", said)


def crashed(exit_code: int | None, stderr: str) -> Verdict:
    """A run that ended without a result."""
    if "cannot be used with root" in stderr:
        return Verdict("unavailable", AS_ROOT)
    return crash("Claude Code", exit_code, stderr)


# The agent's task list, from the calls that change it. Pure: a TaskList is one turn's memory.
#
# Claude Code has two ways: TodoWrite writes the whole list; TaskCreate and TaskUpdate write one task, whose number is
# only in the result of TaskCreate ("Task #1 created successfully: …"; Claude Code 2.1.328).

TOOLS = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate"})
MAX_STEPS = 200
_NUMBER = re.compile(r"#(\d{1,9})\b")


@dataclass(slots=True)
class TaskList:
    """A call counts once its result says that it succeeded."""

    _steps: dict[str, PlanStep] = field(default_factory=dict)
    _calls: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def called(self, call_id: str, name: str, given: dict[str, Any]) -> bool:
        """Whether the call changes the list."""
        if name not in TOOLS:
            return False
        self._calls[call_id] = (name, given)
        return True

    def answered(self, call_id: str, ok: bool, text: str) -> Plan | None:
        """The list after the call's result; None if nothing has changed."""
        name, given = self._calls.pop(call_id, ("", {}))
        before = dict(self._steps)
        if ok and name == "TodoWrite":
            self._write(given)
        elif ok and name == "TaskCreate":
            number = _NUMBER.search(text)
            self._put(number[1] if number else f"call {call_id}", given)
        elif ok and name == "TaskUpdate":
            self._put(str(given.get("taskId", "")), given)
        return None if self._steps == before else Plan(tuple(self._steps.values()))

    def is_own(self, call_id: str) -> bool:
        """Whether the call is waiting for its result here."""
        return call_id in self._calls

    def _write(self, given: dict[str, Any]) -> None:
        todos = given.get("todos")
        if isinstance(todos, list):
            found = [todo for todo in todos if isinstance(todo, dict)]
            self._steps = {str(at): _step(todo, "content", None) for at, todo in enumerate(found[:MAX_STEPS])}

    def _put(self, number: str, given: dict[str, Any]) -> None:
        if given.get("status") == "deleted":
            self._steps.pop(number, None)
            return
        known = self._steps.get(number)
        # For a task of an earlier turn we know only the number, so it is left out.
        if known is not None or (given.get("subject") and len(self._steps) < MAX_STEPS):
            self._steps[number] = _step(given, "subject", known)


def _step(given: dict[str, Any], title: str, known: PlanStep | None) -> PlanStep:
    text = given.get(title)
    if not isinstance(text, str) or not text.strip():
        text = known.text if known else ""
    match given.get("status"):
        case "completed":
            return PlanStep(text, "done")
        case "in_progress":
            return PlanStep(text, "in_progress")
        case None if known is not None:
            return PlanStep(text, known.state)
        case _:
            return PlanStep(text, "pending")


# Claude Code's plan. Its request to leave plan mode does not contain the plan (Claude Code 2.1.328), so we collect it
# from what the model wrote before: the call's own input, or the file below ``.claude/plans``.

_PLAN_DIR = "/.claude/plans/"


@dataclass(slots=True)
class PlanKeeper:
    """The plan of one turn."""

    _inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    _file: str = ""

    def saw(self, call_id: str, name: str, given: dict[str, Any]) -> None:
        """The model called a tool."""
        if name == PLAN_TOOL:
            self._inputs[call_id] = given
            return
        path, content = given.get("file_path"), given.get("content")
        if name == "Write" and isinstance(path, str) and _PLAN_DIR in path and isinstance(content, str):
            self._file = content
        old, new = given.get("old_string"), given.get("new_string")
        is_edit = name == "Edit" and isinstance(path, str) and _PLAN_DIR in path
        if is_edit and isinstance(old, str) and isinstance(new, str) and old:
            # If an edit cannot be applied, the plan stays as last seen.
            self._file = self._file.replace(old, new, -1 if given.get("replace_all") is True else 1)

    def shown(self, call_id: str, given: dict[str, Any]) -> dict[str, Any]:
        """The request's input with the plan added."""
        for found in (given, self._inputs.get(call_id, {}), {"plan": self._file}):
            plan = found.get("plan")
            if isinstance(plan, str) and plan.strip():
                return {**given, "plan": plan}
        return given

"""The lines Claude Code writes in stream-json mode, as far as we use them (Claude Code 2.1.197 to 2.1.328), and what
a turn's results and figures mean.

Tolerant on purpose: unknown fields are ignored; a line that is not understood is None.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from codebutler.text.wording import one_line
from codebutler_worker.agents.backend import LINE_CHARS, STOPPED, Usage, Verdict, crash
from codebutler_worker.tools.lenient_json import UnreadableError, parse_message


class Block(Struct, frozen=True):
    """One content block of an assistant or user message."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: Any = None
    tool_use_id: str = ""
    content: Any = None
    is_error: bool | None = None


class TokenUsage(Struct, frozen=True):
    """Tokens of one API message; ``input_tokens`` excludes what was written to the cache or read from it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    @property
    def all_input(self) -> int:
        """All input tokens, cached or not."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens


class ApiMessage(Struct, frozen=True):
    """The fields we need of an API message."""

    content: list[Block] = []
    model: str = ""
    usage: TokenUsage = TokenUsage()


class UserMessage(Struct, frozen=True):
    """Plain text, or blocks."""

    content: str | list[Block] = ""


class SystemLine(Struct, frozen=True, tag="system"):
    """Init, api_retry, background_tasks_changed and many more."""

    subtype: str = ""
    session_id: str = ""
    model: str = ""
    attempt: int = 0
    max_retries: int = 0
    retry_delay_ms: float = 0
    error_status: int | None = None
    error: str | None = None
    tasks: list[BackgroundTask] = []
    task_id: str = ""
    task_type: str = ""
    is_backgrounded: bool = True


class BackgroundTask(Struct, frozen=True):
    """A task that outlives its tool call; ``local_bash`` is a shell command, anything else a subagent."""

    task_id: str
    task_type: str = ""


class AssistantLine(Struct, frozen=True, tag="assistant"):
    """A message of the model, or of the CLI in its place. ``parent_tool_use_id`` is set within a subagent."""

    message: ApiMessage = ApiMessage()
    parent_tool_use_id: str | None = None
    error: str | None = None


class UserLine(Struct, frozen=True, tag="user"):
    """Tool results (and replays of what we sent)."""

    message: UserMessage = UserMessage()
    parent_tool_use_id: str | None = None


class ResultLine(Struct, frozen=True, tag="result"):
    """The end of one turn. ``total_cost_usd`` is cumulative over the session, ``usage`` is the turn's own."""

    subtype: str = ""
    is_error: bool = True  # a result that does not say so is not a success
    result: str | None = None
    errors: list[str] | None = None
    num_turns: int = 0
    terminal_reason: str | None = None
    api_error_status: int | None = None
    total_cost_usd: float | None = None
    usage: TokenUsage = TokenUsage()


class CommandLifecycle(Struct, frozen=True, tag="command_lifecycle"):
    """The status of a message we sent: queued, started, completed."""

    command_uuid: str = ""
    state: str = ""


class ControlAsk(Struct, frozen=True):
    """A request of the CLI, for example for permission (``can_use_tool``), where ``tool_use_id`` names the call."""

    subtype: str = ""
    tool_name: str = ""
    input: dict[str, Any] = {}
    tool_use_id: str = ""


class ControlRequest(Struct, frozen=True, tag="control_request"):
    """A request from the CLI; every one must be answered."""

    request_id: str
    request: ControlAsk


class ControlCancel(Struct, frozen=True, tag="control_cancel_request"):
    """The CLI withdraws its request ``request_id``."""

    request_id: str


class ControlReply(Struct, frozen=True):
    """The CLI's answer to one of our requests; ``error`` is set if it refuses."""

    subtype: str = ""
    request_id: str = ""
    error: str | None = None
    response: Any = None


class ControlResponse(Struct, frozen=True, tag="control_response"):
    """The CLI's answer to a control request of ours."""

    response: ControlReply


class RateLimitInfo(Struct, frozen=True):
    """The account's usage limits; ``resetsAt`` is in seconds since the epoch."""

    status: str = ""
    resetsAt: float | None = None  # noqa: N815 - the wire's spelling
    rateLimitType: str | None = None  # noqa: N815 - the wire's spelling


class RateLimitLine(Struct, frozen=True, tag="rate_limit_event"):
    """A subscription's limit is near or reached."""

    rate_limit_info: RateLimitInfo = RateLimitInfo()


class StreamedDelta(Struct, frozen=True):
    """A piece of a streamed block, ``text`` empty if it is not text; or the end of a message and its reason."""

    text: str = ""
    stop_reason: str | None = None


class StreamPart(Struct, frozen=True):
    """The start and end of a message carry the tokens; in between a block starts and its text grows (Anthropic's
    streaming Messages API)."""

    type: str = ""
    message: ApiMessage = ApiMessage()
    usage: TokenUsage = TokenUsage()
    content_block: Block = Block()
    delta: StreamedDelta = StreamedDelta()


class StreamEvent(Struct, frozen=True, tag="stream_event"):
    """A piece of an unfinished message: a sign of life, the tokens, and the text so far."""

    event: StreamPart = StreamPart()
    parent_tool_use_id: str | None = None


Line = (
    SystemLine
    | AssistantLine
    | UserLine
    | ResultLine
    | CommandLifecycle
    | ControlRequest
    | ControlCancel
    | ControlResponse
    | RateLimitLine
    | StreamEvent
)


_LINES: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def decode(line: bytes) -> Line | None:
    """The line, or None if its type is unknown or its content does not match the type. A field that is null is as good
    as absent (any service may stand behind the CLI), except in what a tool gets."""
    try:
        return _LINES.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _LINES.decode(msgspec.json.encode(_without_nulls(parse_message(line))))
    except (UnreadableError, msgspec.DecodeError, RecursionError):
        return None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(each) for each in value if each is not None]
    if not isinstance(value, dict):
        return value
    return {
        key: each if key == "input" else _without_nulls(each)
        for key, each in value.items()
        if each is not None
    }


# What a turn has used so far.
#
# The tokens arrive with each message of the model (the streaming Messages API: the input at its start, the output at
# its end), the cost in reply to our control request. A result replaces both by the final figures of the part it ends.

# The cost is updated just after the message's last line, so the first reply may be the old total.
ASKS = 2
# The total is rounded.
ROUNDING_USD = 0.01
_COST = re.compile(r"cost:\s*\$([0-9]+(?:\.[0-9]+)?)", re.IGNORECASE)


class Meter(Struct):
    """Counts what one turn uses. ``before_usd`` is the session's total before this turn, ``usage`` the figures so far.
    ``asks``: how often to ask for the cost from now on, about once a second."""

    before_usd: float = 0.0
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
        before, cost_usd = self._settled, line.total_cost_usd
        if cost_usd is not None and cost_usd >= self.before_usd:  # below, it counts from zero again
            cost_usd -= self.before_usd
        self._settled = self.usage = Usage(
            before.input_tokens + line.usage.all_input,
            before.output_tokens + line.usage.output_tokens,
            cost_usd,
            before.turns + line.num_turns,
        )
        self.asks = 0

    def priced(self, text: str | None) -> bool:
        """Handle the answer to get_session_cost, None for a refusal; True if it changes anything."""
        found = _COST.search(text or "")
        if found is None:
            self._is_mute, self.asks = True, 0
            return False
        cost_usd, known_usd = float(found[1]), self.usage.cost_usd
        if cost_usd >= self.before_usd - ROUNDING_USD:  # below, it counts from zero again
            cost_usd = max(0.0, cost_usd - self.before_usd)
        self.usage = replace(self.usage, cost_usd=cost_usd)
        return self.usage.cost_usd != known_usd


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
    said = one_line(result.result or " ".join(result.errors or []) or "no reason given", LINE_CHARS)
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

"""The lines Claude Code writes in stream-json mode, as far as we use them (Claude Code 2.1.197 to 2.1.328).

Tolerant on purpose: unknown fields are ignored; a line that is not understood is None.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct


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
    """The line, or None if its type is unknown or its content does not match the type."""
    try:
        return _LINES.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

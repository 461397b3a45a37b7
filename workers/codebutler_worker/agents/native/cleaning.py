"""Making room in a conversation: old tool results are shortened first, then a summary replaces its beginning. Pure.

Sizes are in tokens, as the service last counted them; between counts, tokens are estimated from bytes. Room is made
rarely and in large steps, since each time the service's cached prefix is lost. The system prompt (which includes the
memory), the task, people's last messages and the plan are never touched.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from codebutler_worker.agents.native.loop import CUT, CUT_TEXT, EMPTY
from codebutler_worker.agents.native.model import (
    AssistantMessage,
    Message,
    SystemMessage,
    TokenCount,
    ToolMessage,
    UserMessage,
)
from codebutler_worker.tools.tool import PlanStep

BYTES_PER_TOKEN = 4.0
PER_MESSAGE = 6
"""What a message costs besides its text."""
HIGH, LOW = 0.75, 0.5
"""Shares of the model's context: above HIGH room is made, until the conversation is below LOW."""
RECENT = 8
"""This many of the last messages keep their results whole."""
STUB_CHARS = 200
TAIL = 0.25
"""Share of the context that is kept verbatim after a summary."""
SHARE = 0.125
"""Share of the context that a single message may keep if there is no other way."""
LEFT_OUT = "[… {chars} characters were left out to make room …]"

SUMMARY_ORDER = """\
Stop working for a moment: this conversation is getting too long, and will continue from a summary that you write now. \
Write for somebody who continues in your place and knows nothing else: the task and what people asked for since, what \
was found out, what was changed in which file, what was tried and failed, what is left to do. No greeting, no tool \
calls, at most 800 words."""
SUMMARY_HEAD = "[The conversation before this was too long and was summarized. The summary:]"
NO_SUMMARY = "(there is none: look at the files and at `git diff` to see what was done)"
ASKED_HEAD = "[What you were asked then, and work on now:]"
LAST_HEAD = "[What was said last:]"
PLAN_HEAD = "[Your plan:]"


class TokenEstimate(Struct, frozen=True):
    """Estimates the tokens of messages. ``bytes_per_token`` follows the service's counts."""

    bytes_per_token: float = BYTES_PER_TOKEN
    fixed: int = 0
    """Tokens of what is sent with every request: the tools."""

    def of(self, messages: Sequence[Message]) -> int:
        """Tokens of all the messages, including what is sent with every request."""
        return self.fixed + sum(self.one(message) for message in messages)

    def one(self, message: Message) -> int:
        """Tokens of one message, estimated."""
        return PER_MESSAGE + int(_bytes(message) / self.bytes_per_token)

    def used(self, messages: Sequence[Message], said: AssistantMessage) -> TokenCount:
        """What a request and its answer have used, estimated for a service that does not say."""
        return TokenCount(self.of(messages), self.one(said))

    def counted(self, messages: Sequence[Message], tokens: int) -> TokenEstimate:
        """Adjust the estimate: the service counted ``tokens`` for a request with these messages."""
        size = sum(_bytes(message) for message in messages)
        words = tokens - self.fixed - PER_MESSAGE * len(messages)
        if size < 4000 or words <= 0:
            return self  # too little to judge by
        return TokenEstimate(min(8.0, max(1.0, size / words)), self.fixed)


def too_full(messages: Sequence[Message], gauge: TokenEstimate, context: int) -> bool:
    """Whether there is too little room for another answer."""
    return gauge.of(messages) > HIGH * context


def shrunk(
    messages: Sequence[Message], gauge: TokenEstimate, context: int, recent: int = RECENT
) -> tuple[Message, ...]:
    """Cut old results to their beginning, oldest first, until there is room; the last ``recent`` ones stay."""
    found = list(messages)
    size = gauge.of(found)
    for at, message in enumerate(found[: max(0, len(found) - recent)]):
        if size <= LOW * context:
            break
        if isinstance(message, ToolMessage) and len(message.content) > 2 * STUB_CHARS:
            left_out = len(message.content) - STUB_CHARS
            stub = f"{message.content[:STUB_CHARS]}\n[… {left_out} characters were let go to make room …]"
            found[at] = ToolMessage(message.call_id, stub)
            size -= gauge.one(message) - gauge.one(found[at])
    return tuple(found)


def clipped(messages: Sequence[Message], gauge: TokenEstimate, context: int) -> tuple[Message, ...]:
    """Cut the middle out of each text that is too long by itself, except for the system prompt and the calls."""
    most = max(2 * STUB_CHARS, int(SHARE * context * gauge.bytes_per_token))
    return tuple(
        structs.replace(message, content=_clipped(message.content, most))
        if not isinstance(message, SystemMessage) and len(message.content) > most
        else message
        for message in messages
    )


def _clipped(text: str, most: int) -> str:
    half = most // 2
    return f"{text[:half]}\n{LEFT_OUT.format(chars=len(text) - 2 * half)}\n{text[-half:]}"


def cut_at(messages: Sequence[Message], gauge: TokenEstimate, context: int) -> int:
    """Where the verbatim part starts: never between calls and their results."""
    room = TAIL * context
    at = len(messages)
    best = at
    while at > 2:
        at -= 1
        room -= gauge.one(messages[at])
        if room < 0:
            break
        if isinstance(messages[at], UserMessage | AssistantMessage):
            best = at
    return best


def summed_up(
    messages: Sequence[Message], at: int, summary: str, plan: Sequence[PlanStep], asked: str = ""
) -> tuple[Message, ...]:
    """The system prompt, the task, the summary with what this turn was ``asked`` and the plan, and everything from
    ``at`` on. Replaces an earlier summary."""
    head = [message for message in messages[:1] if isinstance(message, SystemMessage)]
    before, after = _said(messages[:at]), _said(messages[at:])
    task = before[0].partition(f"\n\n{SUMMARY_HEAD}")[0] if before else ""
    parts = [task, SUMMARY_HEAD, summary.strip() or NO_SUMMARY]
    if asked not in ("", task, *after):
        parts += [ASKED_HEAD, asked]
    if len(before) > 1 and before[-1] != asked and not after:
        parts += [LAST_HEAD, before[-1]]
    if plan:
        parts += [
            PLAN_HEAD,
            *(f"{number}. [{step.state}] {step.text}" for number, step in enumerate(plan, 1)),
        ]
    return (*head, UserMessage("\n\n".join(parts)), *messages[at:])


def _said(messages: Sequence[Message]) -> list[str]:
    """What people said, without our own messages to the model."""
    users = (message.content for message in messages if isinstance(message, UserMessage))
    return [text for text in users if text not in (CUT, CUT_TEXT, EMPTY)]


def _bytes(message: Message) -> int:
    size = len(message.content.encode(errors="replace"))
    if isinstance(message, AssistantMessage):
        size += len(message.reasoning.encode(errors="replace"))
        size += sum(
            len(call.name) + len(call.arguments.encode(errors="replace")) + 20 for call in message.calls
        )
    return size

"""Making room in a conversation: old tool results shrink first, then a summary takes the place of its beginning. Pure.

Measured in tokens, as the service last counted them; between counts a token is taken for some bytes. What is done is
done in large steps and rarely: each time the service's cache of the beginning is lost. Never touched are the standing
orders (with the memory in them), the task, what people said last, and the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from codebutler_worker.agents.native.loop import CUT, CUT_TEXT, EMPTY
from codebutler_worker.agents.native.model import (
    AssistantMessage,
    Message,
    SystemMessage,
    TokenCount,
    ToolMessage,
    UserMessage,
)
from codebutler_worker.tools.outcome import PlanStep

BYTES_PER_TOKEN = 4.0
PER_MESSAGE = 6
"""What a message costs besides its words."""
HIGH, LOW = 0.75, 0.5
"""Of the model's context: above the one room is made, until it is below the other."""
RECENT = 8
"""So many of the last messages keep their results whole."""
STUB_CHARS = 200
TAIL = 0.25
"""Of the context: what is kept word for word behind a summary."""
SHARE = 0.125
"""Of the context: as much of it a single message keeps where there is no other way."""
LEFT_OUT = "[… {chars} characters were left out to make room …]"

SUMMARY_ORDER = """\
Stop working for a moment: this conversation becomes too long, and will go on from a summary that you write now. \
Write down what somebody needs who goes on in your place and knows nothing else: the task and what people asked for \
since, what was found out, what was changed in which file, what was tried and failed, what is left to do. No greeting, \
no tool calls, at most 800 words."""
SUMMARY_HEAD = "[The conversation before this was too long and was summed up. The summary:]"
NO_SUMMARY = "(there is none: look at the files and at `git diff` to see what was done)"
ASKED_HEAD = "[What you were asked then, and work on now:]"
LAST_HEAD = "[What was said last:]"
PLAN_HEAD = "[Your plan:]"


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """How many tokens messages have. ``bytes_per_token`` follows what the service counts."""

    bytes_per_token: float = BYTES_PER_TOKEN
    fixed: int = 0
    """TokenCount of what is sent with every request: the tools."""

    def of(self, messages: Sequence[Message]) -> int:
        """TokenCount of all of them, together with what goes along with every request."""
        return self.fixed + sum(self.one(message) for message in messages)

    def one(self, message: Message) -> int:
        """TokenCount of one message, an estimate."""
        return PER_MESSAGE + int(_bytes(message) / self.bytes_per_token)

    def used(self, messages: Sequence[Message], said: AssistantMessage) -> TokenCount:
        """What a request and its answer have used, where the service does not say so: an estimate."""
        return TokenCount(self.of(messages), self.one(said))

    def counted(self, messages: Sequence[Message], tokens: int) -> TokenEstimate:
        """After the service counted ``tokens`` for a request with these messages."""
        size = sum(_bytes(message) for message in messages)
        words = tokens - self.fixed - PER_MESSAGE * len(messages)
        if size < 4000 or words <= 0:
            return self  # too little to judge by
        return TokenEstimate(min(8.0, max(1.0, size / words)), self.fixed)


def too_full(messages: Sequence[Message], gauge: TokenEstimate, context: int) -> bool:
    """Whether there is too little room left for another answer."""
    return gauge.of(messages) > HIGH * context


def shrunk(
    messages: Sequence[Message], gauge: TokenEstimate, context: int, recent: int = RECENT
) -> tuple[Message, ...]:
    """With old results cut to their beginning, oldest first, until there is room; the ``recent`` last ones stay."""
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
    """With the middle taken out of whatever is too long by itself, but for the standing orders and the calls."""
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
    """Where the part begins that is kept word for word: not in the middle of calls and their results."""
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
    """The standing orders, the task, the summary with what this turn was ``asked`` and the plan, and what follows
    ``at``. It takes the place of an earlier summary."""
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
    """What people said, without what we told the model ourselves."""
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

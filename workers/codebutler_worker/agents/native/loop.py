"""The loop's decisions: think, act, observe, until something ends it. Pure: a state goes in, the next step comes out.

The driver asks ``step`` what to do, does it, and reports back with ``replied``, ``acted``, ``steered``, ``ended`` or
``stopped``.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from codebutler_worker.agents.answer import AnswerText
from codebutler_worker.agents.native.model import ModelReply, TokenCount, ToolCall

Exit = Literal["done", "max_turns", "repeated_call", "errors", "budget", "stopped", "needs_user"]

MOST_ERRORS = 3
CUT = "Your answer was cut off at the service's length limit. Go on in smaller steps."
EMPTY = "You said nothing and called no tool. Go on, or call end_turn."
LONGEST_ROUND = 4
"""Up to this many consecutive calls count as a round. After two equal rounds the model is warned; a third is not
started."""
MOST_PARTS = 8
"""If an answer is cut off more often, we take it as far as it goes."""
CUT_TEXT = (
    "Your answer was cut off at the service's length limit. Continue exactly where it stopped, "
    "without repeating anything."
)
REPEATED = (
    "(You are repeating yourself: the same arguments as before, with nothing new in between. Do something else; once "
    "more, and your work ends here.)"
)


class LoopLimits(Struct, frozen=True, kw_only=True):
    """Per turn; None or 0 = no limit. ``most_turns`` counts the model's answers."""

    most_turns: int = 0
    most_usd: float | None = None
    most_tokens: int | None = None


class Made(Struct, frozen=True):
    """A call that was made: its signature, and a digest of its result."""

    call: str
    result: str


class Progress(Struct, frozen=True, kw_only=True):
    """The state of a turn.

    ``open``: calls of the last answer that have not been carried out, in order. ``errors``: how many answers in a row
    were useless: empty, cut, or without a call that any tool could parse. ``recent``: the last calls and their results.
    ``nudge``: what we must tell the model next. ``closed``: the last answer called no tool. ``parts``: how many answers
    in a row were cut off.
    """

    turns: int = 0
    errors: int = 0
    last_error: str = ""
    open: tuple[ToolCall, ...] = ()
    understood: bool = False
    recent: tuple[Made, ...] = ()
    nudge: str = ""
    closed: bool = False
    parts: int = 0
    said: AnswerText = field(default_factory=AnswerText)
    tokens: TokenCount = field(default_factory=TokenCount)
    cost_usd: float | None = 0.0
    leaving: Exit | None = None

    @property
    def answer(self) -> str:
        """Its answer for people."""
        return self.said.text


class AskModel(Struct, frozen=True):
    """Ask for the next answer, after telling it ``nudge`` if that is not empty."""

    nudge: str = ""


class RunCall(Struct, frozen=True):
    """Carry out this call."""

    call: ToolCall


class Leave(Struct, frozen=True):
    """The turn is over. ``unanswered`` calls have no result yet."""

    exit: Exit
    unanswered: tuple[ToolCall, ...] = ()


Step = AskModel | RunCall | Leave


def step(progress: Progress, limits: LoopLimits) -> Step:
    """What to do next. Open calls are carried out before anything else is asked or paid for."""
    if progress.leaving is not None:
        return Leave(progress.leaving, progress.open)
    if progress.open:
        call = progress.open[0]
        return (
            Leave("repeated_call", progress.open) if _begins_again(progress.recent, call) else RunCall(call)
        )
    if progress.errors >= MOST_ERRORS:
        return Leave("errors")
    if progress.closed:
        return Leave("done")
    if _spent(progress, limits):
        return Leave("budget")
    if limits.most_turns and progress.turns >= limits.most_turns:
        return Leave("max_turns")
    return AskModel(progress.nudge)


def replied(progress: Progress, reply: ModelReply, cost_usd: float | None) -> Progress:
    """After an answer; ``cost_usd`` is its price, None if unknown."""
    said = reply.said
    empty = not said.calls and not said.content.strip()
    # Text that was cut off is not an error, but a call is: half a call is useless.
    part = reply.cut and not reply.lost_call and not said.calls and not empty
    parts = progress.parts + 1 if part else 0
    broken = (reply.cut or empty) and not said.calls and not part
    answer = progress.said.with_text(said.content)
    known = progress.cost_usd is not None and cost_usd is not None
    return replace(
        progress,
        turns=progress.turns + 1,
        errors=progress.errors + broken,
        last_error=(CUT if reply.cut else EMPTY) if broken else progress.last_error,
        open=said.calls,
        understood=False,
        nudge=CUT_TEXT if part else CUT if reply.cut else EMPTY if empty else "",
        closed=not said.calls and not broken and (not part or parts >= MOST_PARTS),
        parts=parts,
        said=answer.cut() if part else answer,
        tokens=progress.tokens + reply.tokens,
        cost_usd=(progress.cost_usd or 0.0) + (cost_usd or 0.0) if known else None,
    )


def acted(progress: Progress, result: str, *, valid: bool = True, again: bool = False) -> Progress:
    """After the first open call. ``valid``: a tool accepted the arguments, whatever the result. ``again``: the same
    call may follow itself."""
    call, rest = progress.open[0], progress.open[1:]
    understood = progress.understood or valid
    errors = progress.errors
    if not rest:
        # One invalid call among several is not an error.
        errors = 0 if understood else errors + 1
    made = Made(signature(call), hashlib.sha256(result.encode(errors="replace")).hexdigest())
    return replace(
        progress,
        open=rest,
        understood=understood,
        errors=errors,
        last_error=progress.last_error if valid else result,
        recent=() if again else (*progress.recent, made)[-2 * LONGEST_ROUND :],
        said=progress.said.called(call.name),
    )


def repeats(progress: Progress) -> bool:
    """Whether the last calls repeat the ones before, so that the model must be warned."""
    return any(_twice(progress.recent, length) for length in range(1, LONGEST_ROUND + 1))


def steered(progress: Progress) -> Progress:
    """A person said something: the turn continues, and repeating earlier calls is fine."""
    return replace(progress, closed=False, nudge="", recent=(), errors=0)


def ended(progress: Progress, answer: str, *, needs_user: bool) -> Progress:
    """The model ended the turn by itself."""
    leaving: Exit = "needs_user" if needs_user else "done"
    # Many models repeat their text as they end the turn.
    known = not progress.said.is_over and answer.strip() in progress.said.prose
    return replace(
        progress, said=progress.said if known else progress.said.with_text(answer), leaving=leaving
    )


def stopped(progress: Progress) -> Progress:
    """A person stops the turn."""
    return replace(progress, leaving="stopped")


def signature(call: ToolCall) -> str:
    """A canonical form of the call."""
    try:
        arguments = msgspec.json.encode(msgspec.json.decode(call.arguments), order="deterministic").decode()
    except (msgspec.DecodeError, UnicodeError):
        arguments = call.arguments
    return f"{call.name}({arguments})"


def _begins_again(recent: tuple[Made, ...], call: ToolCall) -> bool:
    """Whether ``call`` starts a third equal round."""
    spelled, lengths = signature(call), range(1, LONGEST_ROUND + 1)
    return any(_twice(recent, length) and recent[-length].call == spelled for length in lengths)


def _twice(recent: tuple[Made, ...], length: int) -> bool:
    """Whether the last two rounds were equal. For a single call the result does not matter (a test run prints its
    time); several calls, which may be polling, count only if each had the same result."""
    last, before = recent[-length:], recent[-2 * length : -length]
    if length == 1:
        return [made.call for made in last] == [made.call for made in before] != []
    return len(before) == length and last == before


def _spent(progress: Progress, limits: LoopLimits) -> bool:
    used, tokens = progress.cost_usd, progress.tokens.input + progress.tokens.output
    over_usd = limits.most_usd is not None and used is not None and used >= limits.most_usd
    return over_usd or (limits.most_tokens is not None and tokens >= limits.most_tokens)

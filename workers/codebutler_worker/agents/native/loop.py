"""The loop's decisions: think, act, observe, until something ends it. Pure: a state goes in, the next step comes out.

Whoever drives it asks ``step`` what to do, does it, and tells with ``replied``, ``acted``, ``steered``, ``ended`` or
``stopped`` what came of it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from codebutler_worker.agents.answer import AnswerText
from codebutler_worker.agents.native.model import ModelReply, TokenCount, ToolCall

Exit = Literal["done", "max_turns", "repeated_call", "errors", "budget", "stopped", "needs_user"]

MOST_ERRORS = 3
CUT = "Your answer was cut off at the service's length limit. Go on in smaller steps."
EMPTY = "You said nothing and called no tool. Go on, or call end_turn."
LONGEST_ROUND = 4
"""So many calls that follow one another are looked at as a round. After two equal ones the model is warned, a third is
not begun."""
MOST_PARTS = 8
"""An answer that is cut off more often is given as far as it came."""
CUT_TEXT = (
    "Your answer was cut off at the service's length limit. Continue exactly where it stopped, "
    "without repeating anything."
)
REPEATED = (
    "(You are repeating yourself: the same arguments as before, with nothing new in between. Do something else; once "
    "more, and your work ends here.)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """Of one turn; None or 0 = no limit. ``most_turns`` counts the model's answers."""

    most_turns: int = 0
    most_usd: float | None = None
    most_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was made: how it is spelled, and a digest of its result."""

    call: str
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a turn is.

    ``open``: the calls of the last answer that have not been acted on, in their order. ``errors``: how many answers
    in a row were none: empty, cut, or without a call that any tool could understand. ``recent``: the last calls and
    what came of each. ``nudge``: what the model must be told next by us. ``closed``: the last answer
    called no tool. ``parts``: how often in a row what it said was cut off.
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
        """What it has to say to people."""
        return self.said.text


@dataclass(frozen=True, slots=True)
class AskModel:
    """Ask for the next answer, after telling it ``nudge`` if that is not empty."""

    nudge: str = ""


@dataclass(frozen=True, slots=True)
class RunCall:
    """Do this call."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Leave:
    """The turn is over. ``unanswered`` calls have no result yet."""

    exit: Exit
    unanswered: tuple[ToolCall, ...] = ()


Step = AskModel | RunCall | Leave


def step(progress: Progress, limits: LoopLimits) -> Step:
    """What to do next. What was called is done before anything else is asked or paid for."""
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
    """After an answer; ``cost_usd`` is its price, None if it is unknown."""
    said = reply.said
    empty = not said.calls and not said.content.strip()
    # Words that were cut off are no mistake, but a call is: half of it is nothing.
    part = reply.cut and not reply.lost_call and not said.calls and not empty
    parts = progress.parts + 1 if part else 0
    broken = (reply.cut or empty) and not said.calls and not part
    answer = progress.said.said(said.content)
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
    """After the first open call. ``valid``: a tool understood it, whatever came of it. ``again``: the same call may
    well follow itself."""
    call, rest = progress.open[0], progress.open[1:]
    understood = progress.understood or valid
    errors = progress.errors
    if not rest:
        # One of several calls may be none.
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
    """Whether the last calls were the same as those before: the model is to be warned."""
    return any(_twice(progress.recent, length) for length in range(1, LONGEST_ROUND + 1))


def steered(progress: Progress) -> Progress:
    """Somebody said something: it goes on, and what was called before may be called again."""
    return replace(progress, closed=False, nudge="", recent=(), errors=0)


def ended(progress: Progress, answer: str, *, needs_user: bool) -> Progress:
    """The model ended the turn by itself."""
    leaving: Exit = "needs_user" if needs_user else "done"
    # Many models say the same once more as they end.
    known = not progress.said.is_over and answer.strip() in progress.said.prose
    return replace(progress, said=progress.said if known else progress.said.said(answer), leaving=leaving)


def stopped(progress: Progress) -> Progress:
    """Somebody wants it to end."""
    return replace(progress, leaving="stopped")


def signature(call: ToolCall) -> str:
    """One spelling for one call."""
    try:
        arguments = msgspec.json.encode(msgspec.json.decode(call.arguments), order="deterministic").decode()
    except (msgspec.DecodeError, UnicodeError):
        arguments = call.arguments
    return f"{call.name}({arguments})"


def _begins_again(recent: tuple[Made, ...], call: ToolCall) -> bool:
    """Whether ``call`` begins a third round."""
    spelled, lengths = signature(call), range(1, LONGEST_ROUND + 1)
    return any(_twice(recent, length) and recent[-length].call == spelled for length in lengths)


def _twice(recent: tuple[Made, ...], length: int) -> bool:
    """Whether the last two rounds were equal. One call is whatever came of it (a test run tells its time); several in
    turn, which may wait for something, only if the same came of each."""
    last, before = recent[-length:], recent[-2 * length : -length]
    if length == 1:
        return [made.call for made in last] == [made.call for made in before] != []
    return len(before) == length and last == before


def _spent(progress: Progress, limits: LoopLimits) -> bool:
    used, tokens = progress.cost_usd, progress.tokens.input + progress.tokens.output
    over_usd = limits.most_usd is not None and used is not None and used >= limits.most_usd
    return over_usd or (limits.most_tokens is not None and tokens >= limits.most_tokens)

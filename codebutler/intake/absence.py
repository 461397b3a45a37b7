"""A time in which we were offline, and what we say about it afterwards. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from codebutler.domain.refs import ConversationRef
from codebutler.text.wording import count

# Another return this soon is not announced: a crash loop is announced once.
MERGED = timedelta(minutes=10)
# A shorter absence without effect is not announced,
NOTICED = timedelta(minutes=1)
# and a longer one only where people were talking shortly before.
RECENT = timedelta(minutes=30)


NOT_KEPT = "Messages sent more than {} ago did not reach me: send them again if you still need them."

PRESSES_NOT_KEPT = (
    "Buttons pressed while I was away may not have reached me: press them again if they are still there."
)

# Messages that the chat held back arrive with the connection, before we know that there is one.
AT_ONCE = timedelta(seconds=1)

# Of a crash loop that lasts all night only the latest spans are kept.
MOST_SPANS = 20


class Arrival(NamedTuple):
    """A message: when it was written (Unix seconds, by the chat's clock), and when it was on disk here."""

    sent_at: float
    received_at: datetime


class ChatRetention(NamedTuple):
    """How long the chat keeps what we missed, and presses of the buttons that are there; None = all of it."""

    messages: timedelta | None = None
    presses: timedelta | None = None


ALL = ChatRetention()


class Absence(Struct, frozen=True, kw_only=True):
    """The spans, first to last, in which we were offline: at least one, each with its start and its end.

    ``interrupted`` counts turns by channel; ``told`` are the channels that know; ``done``: everything has
    been announced.
    """

    id: str
    spans: tuple[tuple[datetime, datetime], ...]
    interrupted: Mapping[ConversationRef, int] = {}
    told: tuple[ConversationRef, ...] = ()
    done: bool = False

    @property
    def since(self) -> datetime:
        """When the first span began."""
        return self.spans[0][0]

    @property
    def until(self) -> datetime:
        """When the last span ended."""
        return self.spans[-1][1]


def merged(earlier: Absence | None, latest: Absence) -> Absence:
    """``latest``, with what is left to announce of the previous absence; otherwise a channel that got an announcement
    shortly before gets no second one."""
    if earlier is None:
        return latest
    if not earlier.done:
        return replace(earlier, spans=(*earlier.spans, *latest.spans)[-MOST_SPANS:])
    return replace(latest, told=earlier.told) if latest.until - earlier.until <= MERGED else latest


def late(absence: Absence, arrivals: Iterable[Arrival]) -> int:
    """How many of the messages were written in one of the spans and arrived after it, or as it ended."""
    return sum(any(_is_late(each, since, until) for since, until in absence.spans) for each in arrivals)


def _is_late(arrival: Arrival, since: datetime, until: datetime) -> bool:
    written = datetime.fromtimestamp(arrival.sent_at, tz=until.tzinfo)
    if not since <= written < until:
        return False
    held_back = arrival.received_at - written > AT_ONCE
    return arrival.received_at >= (until - AT_ONCE if held_back else until)


def with_interrupted(absence: Absence, channel: ConversationRef) -> Absence:
    """One more turn of ``channel`` was interrupted."""
    number = absence.interrupted.get(channel, 0) + 1
    return replace(absence, interrupted={**absence.interrupted, channel: number})


def line(
    absence: Absence,
    channel: ConversationRef,
    arrivals: Iterable[Arrival],
    newest_s: float,
    kept: ChatRetention = ALL,
) -> str:
    """The announcement in ``channel``, "" for none. ``newest_s``: when the last message before it was written
    there."""
    away, interrupted = absence.until - absence.since, absence.interrupted.get(channel, 0)
    late_ones = late(absence, arrivals)
    if channel in absence.told:
        return ""
    parts = []
    if late_ones:
        parts.append(f"{count(late_ones, 'message')} sent meanwhile {_be(late_ones)} answered late")
    if interrupted:
        parts.append(
            f"{count(interrupted, 'interrupted run')} {_ask(interrupted)} in its thread how to continue"
        )
    lost = []
    if kept.messages is not None and (parts or newest_s) and _outlasts(absence, kept.messages):
        lost.append(NOT_KEPT.format(span(kept.messages)))
    if kept.presses is not None and _outlasts(absence, kept.presses):
        lost.append(PRESSES_NOT_KEPT)
    if lost:
        told = ", ".join(parts)
        return " ".join((f"👋 Back after {span(away)}{': ' if told else ''}{told}.", *lost))
    talking = newest_s > (absence.since - RECENT).timestamp()
    if not parts and (away < NOTICED or not talking):
        return ""
    return f"👋 Back after {span(away)}: {', '.join(parts) or 'nothing was missed'}."


def _outlasts(absence: Absence, kept: timedelta) -> bool:
    return any(until - since > kept for since, until in absence.spans)


def span(time: timedelta) -> str:
    """A time span in words, as exact as people need it."""
    seconds = max(1, round(time.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = round(seconds / 3600)
    return f"{hours} h" if hours < 48 else f"{round(hours / 24)} days"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def _ask(number: int) -> str:
    return "asks" if number == 1 else "ask"

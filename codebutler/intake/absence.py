"""A time in which we were offline, and what is said about it afterwards. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

# Being back again so soon is not told again: a loop of crashes is told once.
MERGED = timedelta(minutes=10)
# A shorter one need not be told where nothing came of it,
NOTICED = timedelta(minutes=1)
# and a longer one only where people were talking shortly before.
RECENT = timedelta(minutes=30)


NOT_KEPT = "Messages sent more than {} ago did not reach me: send them again if they still matter."

# What the chat held back comes with the connection, before it is known here that there is one.
AT_ONCE = timedelta(seconds=1)

# A loop of crashes that goes on all night is remembered by its latest ones.
MOST_SPANS = 20


class Arrival(NamedTuple):
    """A message: the moment it was written (in Unix seconds, as the chat tells), and the moment it was on disk here."""

    sent_at: float
    received_at: datetime


class Absence(Struct, frozen=True, kw_only=True):
    """The spans, first to last, in which we were offline: at least one, each with its beginning and its end.

    ``interrupted`` counts turns by channel; ``told`` are the channels that know; ``done``: all that had to be told
    is.
    """

    id: str
    spans: tuple[tuple[datetime, datetime], ...]
    interrupted: Mapping[str, int] = {}
    told: tuple[str, ...] = ()
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
    """``latest``, and with it what is left to be told of the one before; else a channel that was told of that one
    shortly before is left in peace."""
    if earlier is None:
        return latest
    if not earlier.done:
        return replace(earlier, spans=(*earlier.spans, *latest.spans)[-MOST_SPANS:])
    return replace(latest, told=earlier.told) if latest.until - earlier.until <= MERGED else latest


def late(absence: Absence, arrivals: Iterable[Arrival]) -> int:
    """How many of the messages were written in one of the spans and came after it, or as it ended."""
    return sum(any(_is_late(each, since, until) for since, until in absence.spans) for each in arrivals)


def _is_late(arrival: Arrival, since: datetime, until: datetime) -> bool:
    written = datetime.fromtimestamp(arrival.sent_at, tz=until.tzinfo)
    if not since <= written < until:
        return False
    held_back = arrival.received_at - written > AT_ONCE
    return arrival.received_at >= (until - AT_ONCE if held_back else until)


def with_interrupted(absence: Absence, channel: str) -> Absence:
    """One more turn of ``channel`` was found interrupted."""
    count = absence.interrupted.get(channel, 0) + 1
    return replace(absence, interrupted={**absence.interrupted, channel: count})


def line(
    absence: Absence,
    channel: str,
    arrivals: Iterable[Arrival],
    newest_s: float,
    kept: timedelta | None = None,
) -> str:
    """What ``channel`` is told, "" for nothing. ``newest_s``: when the last message before it was written there.
    ``kept``: how long the chat keeps what we missed, None = all of it."""
    away, interrupted = absence.until - absence.since, absence.interrupted.get(channel, 0)
    count = late(absence, arrivals)
    if channel in absence.told:
        return ""
    parts = []
    if count:
        parts.append(f"{_count(count, 'message')} sent meanwhile {_be(count)} answered late")
    if interrupted:
        parts.append(
            f"{_count(interrupted, 'interrupted run')} {_ask(interrupted)} in its thread how to continue"
        )
    is_used = bool(parts or newest_s)
    if is_used and kept is not None and any(until - since > kept for since, until in absence.spans):
        told = ", ".join(parts)
        return f"👋 Back after {span(away)}{': ' if told else ''}{told}. {NOT_KEPT.format(span(kept))}"
    talking = newest_s > (absence.since - RECENT).timestamp()
    if not parts and (away < NOTICED or not talking):
        return ""
    return f"👋 Back after {span(away)}: {', '.join(parts) or 'nothing was missed'}."


def span(time: timedelta) -> str:
    """A time in words, as exactly as anybody wants to know."""
    seconds = max(1, round(time.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = round(seconds / 3600)
    return f"{hours} h" if hours < 48 else f"{round(hours / 24)} days"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def _ask(number: int) -> str:
    return "asks" if number == 1 else "ask"

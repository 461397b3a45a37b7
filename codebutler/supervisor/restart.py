"""When a dead worker comes back, decided from its record alone. Pure: time and chance are arguments.

Full-jitter exponential back-off, forgotten after a healthy spell; too many deaths in a window mean
quarantine, tried again at long intervals, and sooner where the disk was at fault (EX_IOERR of sysexits.h),
which people mend without telling us; exit 78 (EX_CONFIG of sysexits.h) means that only a changed
configuration can help. A start for which the machine had no room is no death: it is only tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from codebutler.errors import EXIT_CONFIGURATION, EXIT_IOERR


@dataclass(frozen=True, slots=True)
class Policy:
    """All spans are seconds."""

    first_delay_s: float = 1.0
    longest_delay_s: float = 60.0
    healthy_s: float = 300.0
    deaths: int = 5
    window_s: float = 600.0
    retry_s: float = 600.0
    disk_retry_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Record:
    """What is remembered of a worker's deaths: their moments (monotonic) and the quarantine they led to."""

    deaths: tuple[float, ...] = ()
    attempt: int = 0
    quarantined: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """Start it again in ``delay_s`` seconds."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Leave it down and try once more in ``retry_s`` seconds. ``news``: nobody has been told yet."""

    retry_s: float
    news: bool


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Restarting cannot help until the configuration changes."""


Verdict = Again | Quarantine | GiveUp


def after_death(
    policy: Policy,
    record: Record,
    *,
    now_s: float,
    lived_s: float,
    exit_code: int | None,
    rng: Callable[[], float],
) -> tuple[Record, Verdict]:
    """The new record and what to do. ``lived_s``: since it was ready; ``rng`` gives numbers in [0, 1).

    ``exit_code`` None: nothing died, the machine had no room for another process (files, memory).
    """
    if exit_code == EXIT_CONFIGURATION:
        return Record(), GiveUp()
    if lived_s >= policy.healthy_s:
        record = Record()
    if exit_code is None:
        record = replace(record, attempt=record.attempt + 1)
        return record, Again(backoff_s(policy, record.attempt, rng))
    recent = tuple(t for t in record.deaths if now_s - t < policy.window_s)[1 - policy.deaths :]
    record = replace(record, deaths=(*recent, now_s), attempt=record.attempt + 1)
    retry_s = policy.disk_retry_s if exit_code == EXIT_IOERR else policy.retry_s
    if record.quarantined:
        return record, Quarantine(retry_s, news=False)
    if len(record.deaths) >= policy.deaths:
        return replace(record, quarantined=True), Quarantine(retry_s, news=True)
    return record, Again(backoff_s(policy, record.attempt, rng))


def backoff_s(policy: Policy, attempt: int, rng: Callable[[], float]) -> float:
    """Somewhere between the first delay and a ceiling that doubles with each attempt (1, 2, …)."""
    ceiling_s = min(policy.longest_delay_s, policy.first_delay_s * 2.0 ** min(attempt, 32))
    return policy.first_delay_s + rng() * (ceiling_s - policy.first_delay_s)


def describe(exit_code: int | None) -> str:
    """An exit code in words; negative codes are signals, as the ``subprocess`` module counts."""
    if exit_code is None:
        return "could not be started"
    return f"was killed by signal {-exit_code}" if exit_code < 0 else f"exited with code {exit_code}"

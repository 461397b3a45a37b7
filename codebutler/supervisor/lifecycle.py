"""The decisions about a worker's life: its states, when it must end, and when a dead one restarts. Pure: time and
chance are arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from codebutler.domain.errors import EXIT_CONFIGURATION, EXIT_IOERR
from codebutler.protocol.messages import StopReason

WorkerState = Literal["stopped", "starting", "running", "stopping", "sleeping", "backoff", "quarantined"]
PublicState = Literal["stopped", "starting", "running", "sleeping", "backoff", "quarantined"]
"""``sleeping`` is not a fault: an idle worker's process has ended, and the next event starts it again."""

MOVES: Mapping[WorkerState, frozenset[WorkerState]] = MappingProxyType(
    {
        "stopped": frozenset({"starting"}),
        "starting": frozenset({"running", "stopping", "backoff", "quarantined", "stopped"}),
        "running": frozenset({"stopping", "backoff", "quarantined", "stopped"}),
        "stopping": frozenset({"sleeping", "backoff", "quarantined", "stopped"}),
        "sleeping": frozenset({"starting", "stopped"}),
        "backoff": frozenset({"starting", "stopped"}),
        "quarantined": frozenset({"starting", "stopped"}),
    }
)


def move(old: WorkerState, new: WorkerState) -> WorkerState:
    """``new``, if it may follow ``old``. Raises ValueError: a wrong transition is our bug."""
    if new not in MOVES[old]:
        raise ValueError(f"a worker that is {old} cannot become {new}")
    return new


def public(state: WorkerState) -> PublicState:
    """The state as `codebutler status` shows it: a worker that is being stopped still counts as running."""
    return "running" if state == "stopping" else state


class WorkerTiming(Struct, frozen=True):
    """How long things may take. ``abort_s``: to dump its stacks; ``eof_s``: to end after its pipe is closed;
    ``slot_s``: how long a slow start may block other starts."""

    start_s: float = 30.0
    heartbeat_s: float = 5.0
    missed: int = 3
    abort_s: float = 2.0
    eof_s: float = 2.0
    sleep_grace_s: float = 10.0
    slot_s: float = 3.0

    @property
    def silence_s(self) -> float:
        """A worker that is silent for this long is considered hung."""
        return self.heartbeat_s * self.missed


class Vitals:
    """The vital signs of one process; all times are seconds of one monotonic clock. ``idle_sleep_s``: 0 = it never
    sleeps."""

    def __init__(self, timing: WorkerTiming, idle_sleep_s: float, now_s: float) -> None:
        self.stop_reason: StopReason | None = None
        """The reason it was given when it was asked to end."""
        self._timing = timing
        self._idle_sleep_s = idle_sleep_s
        self._started_s = self._seen_s = now_s
        self.active_s = now_s
        """When it last worked, or was given work."""
        self._ready_s: float | None = None
        self._force_s = math.inf

    def seen(self, now_s: float) -> None:
        """It gave a sign of life."""
        self._seen_s = now_s

    def ready(self, now_s: float) -> None:
        """It is ready for work."""
        self._ready_s = self.active_s = now_s

    def stop(self, reason: StopReason, force_s: float) -> None:
        """It was asked to end, and is killed at ``force_s``. May be called again: the earlier time counts."""
        self.stop_reason = reason
        self._force_s = min(force_s, self._force_s)

    def lived_s(self, now_s: float) -> float:
        """How long it has been ready for work."""
        return 0.0 if self._ready_s is None else now_s - self._ready_s

    def deadline_s(self) -> float:
        """When to check again."""
        if self.stop_reason is not None:
            return self._force_s
        if self._ready_s is None:
            return self._started_s + self._timing.start_s
        sleep_s = self.active_s + self._idle_sleep_s if self._idle_sleep_s else math.inf
        return min(self._seen_s + self._timing.silence_s, sleep_s)

    def fault(self, now_s: float, *, held_up: bool) -> str:
        """Why it must be killed, "" if it need not be. ``held_up``: we are the ones who are not reading."""
        timing = self._timing
        if self.stop_reason is not None:
            return "the worker did not end in time" if now_s >= self._force_s else ""
        if self._ready_s is None:
            late = now_s - self._started_s >= timing.start_s
            return f"the worker was not ready after {timing.start_s:g} s" if late else ""
        silent = now_s - self._seen_s >= timing.silence_s and not held_up
        return f"the worker has been silent for {timing.silence_s:g} s" if silent else ""

    def may_sleep(self, now_s: float, *, busy: bool, wanted: bool = False, follows: bool = False) -> bool:
        """Whether it has been idle for long enough; ``busy``: it has something to do. ``wanted``: another worker needs
        its place, so it need not have been idle for long, even if it ``follows`` something."""
        if self.stop_reason is not None or self._ready_s is None:
            return False
        if busy or follows:
            self.active_s = now_s
        if wanted and not busy:
            return True
        if not self._idle_sleep_s:
            return False
        return now_s - self.active_s >= self._idle_sleep_s


class Policy(Struct, frozen=True):
    """When a dead worker restarts; all durations are in seconds.

    Exponential backoff with full jitter, reset after a healthy period. Too many deaths in a window mean quarantine,
    with retries at long intervals, or shorter ones if the disk was at fault (EX_IOERR of sysexits.h), which people fix
    without telling us. Exit code 78 (EX_CONFIG of sysexits.h) means that only a changed configuration can help. A start
    for which the machine lacked resources is not a death: it is only retried.
    """

    first_delay_s: float = 1.0
    longest_delay_s: float = 60.0
    healthy_s: float = 300.0
    deaths: int = 5
    window_s: float = 600.0
    retry_s: float = 600.0
    disk_retry_s: float = 60.0


class Record(Struct, frozen=True):
    """The deaths of a worker (monotonic times), and the quarantine that followed."""

    deaths: tuple[float, ...] = ()
    attempt: int = 0
    quarantined: bool = False


class Again(Struct, frozen=True):
    """Restart it in ``delay_s`` seconds."""

    delay_s: float


class Quarantine(Struct, frozen=True):
    """Leave it down and retry in ``retry_s`` seconds. ``news``: nobody has been told yet."""

    retry_s: float
    news: bool


class GiveUp(Struct, frozen=True):
    """A restart cannot help until the configuration changes."""


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
    """The new record and what to do. ``lived_s``: since it was ready; ``rng`` returns numbers in [0, 1).

    ``exit_code`` None: nothing died; the machine lacked resources for another process (files, memory).
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
    """A random delay between the first delay and a ceiling that doubles with each attempt (1, 2, …)."""
    ceiling_s = min(policy.longest_delay_s, policy.first_delay_s * 2.0 ** min(attempt, 32))
    return policy.first_delay_s + rng() * (ceiling_s - policy.first_delay_s)


def describe(exit_code: int | None) -> str:
    """An exit code in words; negative codes are signals, as in ``subprocess``."""
    if exit_code is None:
        return "could not be started"
    return f"was killed by signal {-exit_code}" if exit_code < 0 else f"exited with code {exit_code}"

"""What Prometheus reads at ``/metrics``: counts since the supervisor started, and the current state.

Counting costs a dictionary entry. The text is generated on request, and only then is prometheus-client imported. It
holds nothing that a person wrote: labels are names of repositories, chats, agents and calls.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from codebutler.platform.tasks import BoundedDict

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds for the time until an event is on disk. A chat waits seconds for the acknowledgement that follows."""
REMEMBERED = 1000
OTHER = "other"
LABELS = 1000
"""The maximum number of series for turns: configurations choose the names of agents."""


class CallCounts(Struct):
    """One chat's calls by kind: those ``made``, those it ``limited`` (asked us to retry later), and those ``dropped``
    unsent because something newer replaced them."""

    made: Counter[str] = field(default_factory=Counter)
    limited: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


class EventCounts:
    """The supervisor's own counters."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        """The number of events by outcome."""
        self.turns: Counter[tuple[str, str, str]] = Counter()
        """The number of turns by repository, agent and outcome."""
        self._seconds = [0] * (len(BUCKETS_S) + 1)
        self._sum_s = 0.0
        self._counted: BoundedDict[str, None] = BoundedDict(REMEMBERED)

    def event(self, outcome: str, seconds: float) -> None:
        """An event was received, and was on disk (or did not need to be) after this time."""
        self.events[outcome] += 1
        self._seconds[bisect_left(BUCKETS_S, seconds)] += 1
        self._sum_s += seconds

    def turn(self, op_id: str, repo: str, agent: str, outcome: str) -> None:
        """An agent's run has ended. Workers may report it twice, with the same ``op_id``."""
        if not agent or op_id in self._counted:
            return
        self._counted[op_id] = None
        key = (repo, agent, outcome)
        self.turns[key if key in self.turns or len(self.turns) < LABELS else (OTHER, OTHER, outcome)] += 1

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, number of events that took at most that long), in Prometheus' format."""
        bounds = [*(f"{bound:g}" for bound in BUCKETS_S), "+Inf"]
        return [*zip(bounds, map(float, accumulate(self._seconds)), strict=True)]

    @property
    def sum_s(self) -> float:
        """The total time."""
        return self._sum_s


class MetricsFacts(Struct, frozen=True, kw_only=True):
    """``status``: the object of `codebutler status`; ``calls`` by the chat's name in it; ``lines``: log lines by
    tag."""

    status: Mapping[str, Any]
    counts: EventCounts
    calls: Mapping[str, CallCounts]
    lines: Mapping[str, int]


def exposition(facts: MetricsFacts) -> tuple[bytes, str]:
    """The response to a scrape, and its content type. Imports prometheus-client: do not call from the event loop."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from prometheus_client.registry import Collector

    class Once(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from families(facts)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once())
    return generate_latest(registry), CONTENT_TYPE_LATEST


def families(facts: MetricsFacts) -> Iterator[Metric]:
    """Every family of metrics. Pure."""
    yield from _counted(facts)
    yield from _chats(facts)
    yield from _repos(facts.status["repos"])
    status = facts.status
    build = _gauge("info", "The running version.", ("version",))
    build.add_metric([status["supervisor"]["version"]], 1)
    yield build
    for name, text, value in (
        ("uptime_seconds", "How long the supervisor has been running.", status["supervisor"]["uptime_s"]),
        ("journal_pending", "Events on disk that no worker has accepted yet.", status["journal"]["pending"]),
        (
            "outbox_pending",
            "Operations that workers have sent and the chat has not.",
            status["outbox"]["pending"],
        ),
    ):
        family = _gauge(name, text)
        family.add_metric([], value)
        yield family


def _counted(facts: MetricsFacts) -> Iterator[Metric]:
    from prometheus_client.metrics_core import HistogramMetricFamily

    events = _counter("events", "Events received, by outcome.", ("outcome",))
    for outcome, number in facts.counts.events.items():
        events.add_metric([outcome], number)
    yield events
    kept = HistogramMetricFamily(
        "codebutler_event_seconds", "From an event's arrival until it is on disk and can be acknowledged."
    )
    kept.add_metric([], facts.counts.buckets, facts.counts.sum_s)
    yield kept
    turns = _counter("turns", "Runs that have ended.", ("repo", "agent", "outcome"))
    for labels, number in facts.counts.turns.items():
        turns.add_metric(labels, number)
    yield turns
    lines = _counter("log_lines", "Lines of the log, by tag; ERR are errors.", ("tag",))
    for tag, number in facts.lines.items():
        lines.add_metric([tag], number)
    yield lines
    for name, text, which in (
        ("chat_calls", "Calls to the chat.", "made"),
        ("chat_calls_limited", "Calls that the chat asked to repeat later.", "limited"),
        (
            "chat_operations_dropped",
            "Operations left unsent because something newer replaced them.",
            "dropped",
        ),
    ):
        family = _counter(name, text, ("chat", "call"))
        for chat, counts in facts.calls.items():
            for call, number in getattr(counts, which).items():
                family.add_metric([chat, call], number)
        yield family


def _chats(facts: MetricsFacts) -> Iterator[Metric]:
    connected = _gauge("chat_connected", "1 while events arrive from the chat.", ("chat",))
    age = _gauge("chat_last_event_age_seconds", "Time since the chat last sent anything.", ("chat",))
    reconnects = _counter("chat_reconnects", "How often the connection was reestablished.", ("chat",))
    for name in facts.calls:
        chat = facts.status[name]
        connected.add_metric([name], chat["state"] == "connected")
        reconnects.add_metric([name], chat.get("reconnects", 0))
        if (age_s := chat.get("last_event_age_s")) is not None:
            age.add_metric([name], age_s)
    yield from (connected, age, reconnects)


def _repos(rows: list[Mapping[str, Any]]) -> Iterator[Metric]:
    state = _gauge("worker_state", "1 for the state that the worker is in.", ("repo", "state"))
    restarts = _counter("worker_restarts", "How often the worker was restarted.", ("repo",))
    memory = _gauge("worker_memory_bytes", "The worker's memory (proportional set size).", ("repo",))
    turns = _gauge("turns_now", "Runs that are running, queued, or waiting for somebody.", ("repo", "state"))
    runs = _gauge("runs_today", "Runs started today.", ("repo",))
    tokens = _gauge("tokens_today", "Tokens used today.", ("repo",))
    cost = _gauge("cost_today_dollars", "What today's runs have cost, if their agents say.", ("repo",))
    for row in rows:
        name, worker = row["name"], row["worker"]
        state.add_metric([name, worker["state"]], 1)
        restarts.add_metric([name], worker["restarts"])
        if worker["pss_bytes"] is not None:
            memory.add_metric([name], worker["pss_bytes"])
        for kind in ("running", "queued", "waiting"):
            turns.add_metric([name, kind], row["turns"][kind])
        today = row.get("today") or {}
        for family, unit in ((runs, "runs"), (tokens, "tokens"), (cost, "usd")):
            family.add_metric([name], today.get(unit, 0))
    yield from (state, restarts, memory, turns, runs, tokens, cost)


def _gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Any:
    from prometheus_client.metrics_core import GaugeMetricFamily

    return GaugeMetricFamily(f"codebutler_{name}", text, labels=labels)


def _counter(name: str, text: str, labels: tuple[str, ...]) -> Any:
    from prometheus_client.metrics_core import CounterMetricFamily

    return CounterMetricFamily(f"codebutler_{name}", text, labels=labels)

"""``/metrics`` over real HTTP: what it says, and to whom."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from codebutler.config.section import DashboardSection, MetricsSection
from codebutler.domain.clock import SystemClock
from codebutler.observe.metrics import CallCounts, EventCounts, MetricsFacts
from codebutler.platform.tasks import beside
from codebutler.web.server import DashboardAddress, Hooks, MetricsPage, WebServer
from tests.dashboards import NoHooks
from tests.integration.web.test_hooks import NoDashboard

HOW_TO = Path(__file__).parents[3] / "docs/how-to"
PAGE, GRAFANA = HOW_TO / "measure-it.md", HOW_TO / "grafana.json"
STATUS: dict[str, Any] = {
    "supervisor": {"version": "1.2.3", "uptime_s": 60.0},
    "slack": {"state": "connected", "reconnects": 2, "last_event_age_s": 1.5},
    "journal": {"pending": 3},
    "outbox": {"pending": 4},
    "repos": [
        {
            "name": 'sh"op',
            "worker": {"state": "running", "restarts": 1, "pss_bytes": 20_000_000},
            "turns": {"running": 1, "queued": 2, "waiting": 0},
            "today": {"runs": 5, "tokens": 700, "usd": 0.25, "minutes": 3.0},
        },
        {
            "name": "asleep",
            "worker": {"state": "asleep", "restarts": 0, "pss_bytes": None},
            "turns": {"running": 0, "queued": 0, "waiting": 0},
        },
    ],
}


def facts() -> MetricsFacts:
    counts, calls = EventCounts(), CallCounts()
    counts.event("accepted", 0.004)
    counts.event("duplicate", 9.0)
    for op_id in ("a", "b", "a"):
        counts.turn(op_id, 'sh"op', "claude", "done")
    calls.made["post"] += 2
    calls.limited["post"] += 1
    calls.dropped["update"] += 7
    return MetricsFacts(status=STATUS, counts=counts, calls={"slack": calls}, lines={"ERR": 1})


@asynccontextmanager
async def scraped(section: MetricsSection) -> AsyncIterator[httpx.AsyncClient]:
    async def look() -> MetricsFacts:
        return facts()

    hooks = Hooks(NoHooks(), SystemClock())
    server = WebServer(
        DashboardSection(port=0), hooks, NoDashboard(), DashboardAddress(), MetricsPage(section, look)
    )
    async with beside(server.run(), name="front"):
        await server.listening.wait()
        async with httpx.AsyncClient(base_url=server.url) as client:
            yield client


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_scrape_is_what_prometheus_reads() -> None:
    async with scraped(MetricsSection(allow=("127.0.0.1",))) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    found = samples(answer.text)
    repo = (("repo", 'sh"op'),)
    assert found["codebutler_events_total", (("outcome", "accepted"),)] == 1
    assert found["codebutler_event_seconds_bucket", (("le", "0.005"),)] == 1
    assert found["codebutler_event_seconds_bucket", (("le", "+Inf"),)] == 2
    assert found["codebutler_event_seconds_count", ()] == 2
    ended = (("agent", "claude"), ("outcome", "done"), *repo)
    assert found["codebutler_turns_total", ended] == 2
    assert found["codebutler_chat_calls_total", (("call", "post"), ("chat", "slack"))] == 2
    assert found["codebutler_chat_calls_limited_total", (("call", "post"), ("chat", "slack"))] == 1
    assert found["codebutler_chat_operations_dropped_total", (("call", "update"), ("chat", "slack"))] == 7
    assert found["codebutler_chat_connected", (("chat", "slack"),)] == 1
    assert found["codebutler_chat_last_event_age_seconds", (("chat", "slack"),)] == 1.5
    assert found["codebutler_worker_memory_bytes", repo] == 20_000_000
    assert ("codebutler_worker_memory_bytes", (("repo", "asleep"),)) not in found
    assert found["codebutler_worker_state", (*repo, ("state", "running"))] == 1
    assert found["codebutler_cost_today_dollars", repo] == 0.25
    assert found["codebutler_tokens_today", (("repo", "asleep"),)] == 0
    assert found["codebutler_journal_pending", ()] == 3
    assert found["codebutler_log_lines_total", (("tag", "ERR"),)] == 1


@pytest.mark.parametrize(
    ("section", "headers", "status"),
    [
        (MetricsSection(), {}, 404),
        (MetricsSection(allow=("10.0.0.0/8",)), {}, 403),
        (MetricsSection(allow=("127.0.0.0/8",)), {}, 200),
        (MetricsSection(allow=("127.0.0.1",)), {"host": "evil.example"}, 403),
        (MetricsSection(allow=("127.0.0.1",)), {"origin": "http://evil.example"}, 403),
        (MetricsSection(allow=("127.0.0.1",), token="right"), {}, 403),
        (MetricsSection(allow=("127.0.0.1",), token="right"), {"authorization": "Bearer wrong"}, 403),
        (MetricsSection(allow=("127.0.0.1",), token="right"), {"authorization": "Bearer right"}, 200),
        (MetricsSection(allow=("10.0.0.1",), token="right"), {"authorization": "Bearer right"}, 403),
        (MetricsSection(allow=("127.0.0.1/99", ":::")), {}, 403),
    ],
)
async def test_who_may_read_it(section: MetricsSection, headers: dict[str, str], status: int) -> None:
    async with scraped(section) as client:
        assert (await client.get("/metrics", headers=headers)).status_code == status


def test_beyond_this_machine_an_address_is_not_enough() -> None:
    async def look() -> MetricsFacts:
        return facts()

    def admits(token: str, authorization: str) -> bool:
        return MetricsPage(MetricsSection(allow=("10.0.0.0/8",), token=token), look).admits(
            "10.1.2.3", authorization
        )

    assert not admits("", "")
    assert not admits("", "Bearer ")
    assert not admits("right", "")
    assert admits("right", "Bearer right")


def test_agents_cannot_make_series_without_end() -> None:
    counts = EventCounts()
    for number in range(5000):
        counts.turn(str(number), "shop", f"agent{number}", "done")
    assert len(counts.turns) <= 1001
    assert sum(counts.turns.values()) == 5000


async def test_the_page_and_the_dashboard_for_grafana_name_exactly_what_there_is() -> None:
    async with scraped(MetricsSection(allow=("127.0.0.1",))) as client:
        text = (await client.get("/metrics")).text
    told = {name for name, _ in samples(text)}
    families = {re.sub(r"_(bucket|sum|count)\Z", "", name) for name in told}
    assert set(re.findall(r"`(codebutler_\w+)`", PAGE.read_text())) == families
    drawn = {
        name
        for panel in json.loads(GRAFANA.read_text())["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\bcodebutler_\w+", target["expr"])
    }
    assert drawn <= told
    assert {re.sub(r"_bucket\Z", "", name) for name in drawn} == families

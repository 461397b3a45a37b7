"""A host's rows of the ledger on their way to its gateway, over a real NATS server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as changed

from codebutler.config.chats import SlackSection
from codebutler.config.registry import RepoEntry
from codebutler.config.schema import Config
from codebutler.domain.clock import SystemClock
from codebutler.domain.refs import NOWHERE
from codebutler.intake.repos import Served
from codebutler.parent import host_reports
from codebutler.parent.host_reports import HostedHere, HostRuns
from codebutler.platform.tasks import beside
from codebutler.protocol.capabilities import RunsReport
from codebutler.protocol.conversations import Traced, WorkSpan
from codebutler.protocol.messages import TurnEnded
from codebutler_worker.store.opening import open_store
from codebutler_worker.store.unit_of_work import iso
from tests.clock import ManualClock
from tests.integration.ledger.test_ledger import BEGIN, DONE, store_of, written
from tests.natsserver import nats_server
from tests.seam import Gateway, Host, gateway, host, remote, until

ENDED = TurnEnded(op_id="e1", messages=(), outcome="done", agent="claude", thread=NOWHERE)


@asynccontextmanager
async def telling(here: Host, repo: Path) -> AsyncIterator[None]:
    entry = RepoEntry(name="shop", path=str(repo), channel_id="C01")
    served = Served(entry, Config(slack=SlackSection(channel_id="C01")), (), trusted=True)
    there = HostedHere(changed(remote(), path=str(repo), host="laptop"), served)
    runs = HostRuns(lambda: {"shop": there}, here.services, SystemClock(), lambda *told: None)
    async with beside(runs.run(), name="runs"):
        yield


def told(opened: Gateway) -> list[list[str]]:
    """The runs in each report."""
    return [
        [row.run for row in report.rows]
        for _, report in opened.services.reports
        if isinstance(report, RunsReport)
    ]


async def test_all_runs_are_told_once_and_again_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_reports, "MOST_TOLD", 2)
    monkeypatch.setattr(host_reports, "GATHER_S", 0.05)
    queued = replace(DONE, id="q", state="stopped", started_at=None)
    many = [replace(DONE, id=f"t{n}", finished_at=iso(BEGIN + timedelta(days=n))) for n in range(1, 5)]
    await written(tmp_path, queued, *many)
    async with nats_server(tmp_path) as server, gateway(server) as opened:
        opened.services.known_runs = {"shop": ""}
        opened.hosts.add(remote())
        async with host(server) as here, telling(here, tmp_path):
            await until(lambda: [run for each in told(opened) for run in each] == ["t1", "t2", "t3", "t4"])
            async with open_store(store_of(tmp_path), ManualClock()) as store:
                await store.run(lambda uow: uow.turns.update("t4", checks="passed"))
                await here.services.turn_ended(remote(), ENDED)
                await until(lambda: told(opened)[-1] == ["t4"])
                await store.run(lambda uow: uow.turns.add(replace(many[3], id="t5", agent="bash")))
                await here.services.turn_ended(remote(), ENDED)
                await until(lambda: told(opened)[-1] == ["t5"])
        assert all(len(each) <= 2 for each in told(opened))


async def test_the_next_gateway_gets_what_it_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_reports, "GATHER_S", 0.05)
    many = [replace(DONE, id=f"t{n}", finished_at=iso(BEGIN + timedelta(days=n))) for n in range(1, 7)]
    await written(tmp_path, *many)
    async with nats_server(tmp_path) as server, host(server) as here, telling(here, tmp_path):
        async with gateway(server) as first:
            first.hosts.add(remote())
            await here.spawner.worker()
            await here.services.turn_ended(remote(), ENDED)
            assert here.services.runs == {}, "it keeps no runs, and is not told of any"
            assert told(first) == []
        async with gateway(server) as second:
            second.services.known_runs = {"shop": iso(BEGIN + timedelta(days=6))}
            second.hosts.add(remote())
            await until(lambda: told(second))
            assert told(second) == [["t4", "t5", "t6"]], "and of the last two days, which may have changed"
        async with gateway(server) as third:
            third.services.known_runs = {"shop": ""}
            third.hosts.add(remote())
            await until(lambda: told(third) == [["t1", "t2", "t3", "t4", "t5", "t6"]])


async def test_times_of_a_trace_are_by_the_gateways_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = f"00-{'1' * 32}-{'2' * 16}-01"
    async with nats_server(tmp_path) as server, gateway(server) as opened, host(server) as here:
        opened.hosts.add(remote())
        await here.spawner.worker()
        now_ns = int(SystemClock().now().timestamp() * 1e9)
        hour_ns = 3600 * 10**9
        monkeypatch.setattr("codebutler.cluster.services.time.time_ns", lambda: now_ns + hour_ns)
        span = WorkSpan(
            name="agent", began=now_ns + hour_ns - 2000, ended=now_ns + hour_ns - 1000, label="claude"
        )
        here.services.show(remote(), Traced(trace=context, spans=(span,)))
        await until(lambda: opened.services.traced)
        (found,) = opened.services.traced[0].spans
        assert found.ended - found.began == 1000
        assert abs(found.ended - now_ns) < 10 * 10**9

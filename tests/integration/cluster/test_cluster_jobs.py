"""Jobs of a host's repositories: its file is told, the gateway keeps it, and the host watches files; over a real NATS
server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.config.chats import SlackSection
from codebutler.config.paths import Home
from codebutler.config.registry import JobsProvenance, Registry, RepoEntry
from codebutler.config.schema import Config
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import ChatError, CodeButlerError
from codebutler.intake.repos import RepoTable, Served
from codebutler.parent.host_reports import HostedHere, HostJobs
from codebutler.platform.tasks import beside
from codebutler.protocol.capabilities import HostReport, JobsReport, UseReport, WatchReport
from codebutler.protocol.messages import Configure, DayUse, TotalUse
from codebutler.schedule.files import JobFiles, ToldJobs, job_sources
from tests.integration.cluster.test_cluster_absence import notes
from tests.natsserver import bus, nats_server
from tests.seam import gateway, host, remote, until

FILE = "jobs: [{name: look, watch: '*.c', prompt: list the files}]"


def served(path: str, tmp_path: Path) -> Served:
    entry = RepoEntry(name="shop", path=path, channel_id="C01")
    return Served(entry, Config(slack=SlackSection(channel_id="C01")), (), trusted=True)


async def test_a_file_and_its_changes_are_told_and_what_it_watches(tmp_path: Path, git_repo: Path) -> None:
    there = HostedHere(replace(remote(), path=str(git_repo), host="laptop"), served(str(git_repo), tmp_path))
    file = git_repo / ".codebutler" / "jobs.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(FILE)
    async with nats_server(tmp_path) as server, gateway(server) as opened, host(server) as here:
        opened.hosts.add(remote())
        await here.spawner.worker()
        here_jobs = HostJobs(
            lambda: {"shop": there},
            here.services,
            JobsProvenance(Registry(Home(tmp_path / "home").ensure())),
            SystemClock(),
            lambda *told: None,
        )
        reports = opened.services.reports

        def told(kind: type[HostReport]) -> list[HostReport]:
            return [report for _, report in reports if isinstance(report, kind)]

        async with beside(here_jobs.run(), name="jobs"):
            await until(lambda: told(JobsReport))
            (first,) = told(JobsReport)
            assert isinstance(first, JobsReport)
            assert first.data == FILE.encode()
            assert "jobs.yaml" in first.path

            def touch() -> list[HostReport]:
                (git_repo / "a.c").write_text("int a;")
                return told(WatchReport)

            await until(touch)
            (change, *_) = told(WatchReport)
            assert isinstance(change, WatchReport)
            assert change.job == "look"
            file.write_text("jobs: []")
            await until(lambda: len(told(JobsReport)) == 2)
        assert {name for name, _ in reports} == {"shop"}
        with pytest.raises(ChatError, match="is not served by this host"):
            await here.services.reported(remote("tools"), UseReport(days={}))


async def test_a_host_hears_what_all_use_whenever_that_changes(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server:
        async with gateway(server) as first, host(server) as here:
            first.services.totals = {"shop": total(1)}
            first.hosts.add(remote())
            first.hosts.add(remote("tools", "C02"))
            worker = await here.spawner.worker()
            await until(lambda: [each for each in worker.heard if isinstance(each, Configure)])
            assert here.services.total(remote()) == total(1)
            assert here.services.total(remote("tools")) is None
            here.services.total_here = lambda _: total(7)
            assert here.services.total(remote("tools")) == total(7)
            first.services.totals = {"shop": total(2)}
            first.hosts.tell_total()
            await until(lambda: total(2) in worker.heard)
        async with gateway(server) as second, host(server) as here:
            second.services.totals = {"shop": total(3)}
            second.hosts.add(remote())
            await until(lambda: here.services.total(remote()) == total(3))


def total(runs: int) -> TotalUse:
    return TotalUse(day=DayUse(runs=runs), until="x", month=DayUse(runs=runs), month_until="y")


async def test_what_was_told_outlives_its_gateway(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").ensure()
    table = RepoTable((served("laptop:shop", tmp_path),))
    async with nats_server(tmp_path) as server, bus(server) as connected:
        first = ToldJobs(await notes(connected, "first"))
        await first.keep("shop", JobsReport(data=FILE.encode(), path="laptop:/jobs.yaml"))
        second = ToldJobs(await notes(connected, "second"))
        await second.load(["shop", "tools"])
        files = JobFiles(lambda: job_sources(home, table, {}, JobsProvenance(Registry(home)), second))
        found = await asyncio.to_thread(files.look)
        assert list(found.jobs) == ["shop/look"]
        assert found.jobs["shop/look"].channel == "C01"
        why = "laptop:/jobs.yaml came with the repository"
        await second.keep("shop", JobsReport(data=None, path="laptop:/jobs.yaml", trouble=why))
        for _ in range(2):
            found = await asyncio.to_thread(files.look)
        assert list(found.jobs) == ["shop/look"], "the last valid version stays in force"
        assert [news.line for news in found.news] == [f"{why}; the previous jobs stay in force"]
        with pytest.raises(CodeButlerError):
            second.read("shop")

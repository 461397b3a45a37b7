"""What a host reports to its gateway about its repositories: the rows of their runs, when they are new or have changed;
their ``jobs.yaml``, which the gateway's clock runs (files are watched here); and what they use, for the budget of all
hosts together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

from msgspec import Struct

from codebutler.cluster.services import HostServices
from codebutler.config.programs import uses_model
from codebutler.config.registry import JobsProvenance
from codebutler.config.schema import RepoSettings
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError
from codebutler.intake.repos import Served
from codebutler.observe.ledger import ended_since
from codebutler.parent.local import Record
from codebutler.parent.spending import Spending
from codebutler.platform.tasks import Tasks, wait_for
from codebutler.protocol.capabilities import (
    MOST_TOLD,
    JobsReport,
    LedgerRow,
    RunsReport,
    UseReport,
    WatchReport,
)
from codebutler.protocol.messages import DayUse
from codebutler.schedule.files import JobFiles, own_sources
from codebutler.schedule.jobs import FILE_NAME, Job
from codebutler.schedule.scheduler import LOOK_S, SETTLE_S
from codebutler.schedule.watch import Watchers
from codebutler.supervisor.port import Services

MAX_TROUBLE_CHARS = 2000
GATHER_S = 1.0
"""Changes this close together go into one report: the end of a run, its card, its reply."""
RETRY_S = 60.0
LOOK_BACK = timedelta(days=2)
"""What becomes known after a run (its commits, its checks) is in its row soon after its end."""


class HostedHere(Struct, frozen=True):
    """A repository that this host serves, as its worker sees it and as it is registered."""

    settings: RepoSettings
    served: Served


class HostJobs:
    """Reports the jobs of this host; ``run`` until cancelled. ``hosted``: the repositories that are served now, by
    name."""

    def __init__(
        self,
        hosted: Callable[[], Mapping[str, HostedHere]],
        services: Services,
        provenance: JobsProvenance,
        clock: Clock,
        record: Record,
    ) -> None:
        self._hosted = hosted
        self._services = services
        self._clock = clock
        self._record = record
        self._files = JobFiles(lambda: own_sources([each.served for each in hosted().values()], provenance))
        self._watchers = Watchers(self._path_of, self._changed)
        self._told: dict[str, tuple[bytes | None, str]] = {}
        self._tasks = Tasks(lambda name, error: record("", "ERR", f"{name} failed: {error!r}"))

    async def run(self) -> None:
        """Check regularly, and report changes."""
        try:
            while True:
                found = await asyncio.to_thread(self._files.look)
                self._watchers.use(found.jobs.values())
                hosted = self._hosted()
                self._told = {name: told for name, told in self._told.items() if name in hosted}
                for name, each in hosted.items():
                    await self._tell(each.settings, self._files.content(name))
                await self._clock.sleep(SETTLE_S if found.unsettled else LOOK_S)
        finally:
            await self._watchers.close()
            await self._tasks.close(0)

    async def _tell(self, repo: RepoSettings, content: tuple[bytes | None, str]) -> None:
        if self._told.get(repo.name) == content:
            return
        data, trouble = content
        path = f"{repo.host}:{Path(repo.path) / '.codebutler' / FILE_NAME}"
        try:
            await self._services.reported(
                repo, JobsReport(data=data, path=path, trouble=trouble[:MAX_TROUBLE_CHARS])
            )
        except CodeButlerError as error:
            self._record(repo.name, "WRN", f"the gateway could not take its jobs: {error}")
        self._told[repo.name] = content

    def _changed(self, job: Job) -> None:
        hosted = self._hosted().get(job.repo)
        if hosted is not None:
            report = WatchReport(job=job.name, key=uuid4().hex)
            self._tasks.start(self._services.reported(hosted.settings, report), name=f"change for {job.name}")

    def _path_of(self, repo: str) -> Path | None:
        hosted = self._hosted().get(repo)
        return Path(hosted.settings.path) if hosted else None


class HostRuns:
    """Reports the runs of this host; ``run`` until cancelled. ``hosted``: the repositories that are served now, by
    name."""

    def __init__(
        self,
        hosted: Callable[[], Mapping[str, HostedHere]],
        services: HostServices,
        clock: Clock,
        record: Record,
    ) -> None:
        self._hosted = hosted
        self._services = services
        self._clock = clock
        self._record = record
        self._due: set[str] = set()
        self._marks: dict[str, str] = {}
        """By repository: when the latest run ended of those that the gateway has."""
        self._told: dict[str, dict[tuple[str, str], int]] = {}
        """By repository: digests of the latest rows that were reported."""
        self._news = asyncio.Event()
        services.on_runs, services.on_sent = self._begin, self._changed
        self._begin()

    def _begin(self) -> None:
        self._marks = dict(self._services.runs)
        self._told.clear()
        self._due.update(self._marks)
        self._news.set()

    def _changed(self, repo: str) -> None:
        if repo in self._marks:
            self._due.add(repo)
            self._news.set()

    async def run(self) -> None:
        """Report what each repository's store has, whenever it may have changed."""
        while True:
            await wait_for(self._clock, self._news, RETRY_S)
            self._news.clear()
            if self._due:
                await self._clock.sleep(GATHER_S)
            hosted = self._hosted()
            for name in sorted(self._due & hosted.keys()):
                self._due.discard(name)
                try:
                    await self._tell(name, hosted[name])
                except CodeButlerError as error:
                    self._due.add(name)
                    self._record(name, "WRN", f"the gateway does not have all its runs yet: {error}")

    async def _tell(self, name: str, hosted: HostedHere) -> None:
        """Raises CodeButlerError."""
        if (mark := self._marks.get(name)) is None:
            return
        path = Path(hosted.settings.path)
        told, since = self._told.setdefault(name, {}), _before(mark)
        while True:
            rows = await asyncio.to_thread(ended_since, name, path, since, MOST_TOLD)
            if new := [row for row in rows if told.get(_key(row)) != hash(row)]:
                programs = {row.agent for row in new if not uses_model(hosted.served.config, row.agent)}
                report = RunsReport(rows=tuple(new), programs=frozenset(programs))
                await self._services.reported(hosted.settings, report)
                told.update((_key(row), hash(row)) for row in new)
                mark = max(mark, new[-1].ended)
            if len(rows) < MOST_TOLD or rows[-1].ended == since:
                break
            since = rows[-1].ended
        if self._told.get(name) is told:  # else another gateway leads, and has reported what it knows
            self._marks[name], oldest = mark, _before(mark)
            self._told[name] = {key: known for key, known in told.items() if key[0] >= oldest}


def _key(row: LedgerRow) -> tuple[str, str]:
    return row.ended, row.run or row.agent


def _before(mark: str) -> str:
    return (datetime.fromisoformat(mark) - LOOK_BACK).isoformat(timespec="microseconds") if mark else ""


class HostUse:
    """Reports the use of this host; ``run`` until cancelled, beside ``spending.run``."""

    def __init__(
        self,
        hosted: Callable[[], Mapping[str, HostedHere]],
        spending: Spending,
        services: Services,
        record: Record,
    ) -> None:
        self._hosted = hosted
        self._spending = spending
        self._services = services
        self._record = record
        self._told: dict[str, dict[str, DayUse]] = {}
        self._news = asyncio.Event()
        spending.changed.add(self._news.set)

    async def run(self) -> None:
        """Report each repository's daily use, whenever it has changed."""
        while True:
            await self._news.wait()
            self._news.clear()
            hosted = self._hosted()
            self._told = {name: told for name, told in self._told.items() if name in hosted}
            for name, each in hosted.items():
                days = {day.isoformat(): use for day, use in self._spending.days(name).items()}
                if days == self._told.get(name, {}):
                    continue
                try:
                    await self._services.reported(each.settings, UseReport(days=days))
                except CodeButlerError as error:
                    self._record(name, "WRN", f"the gateway could not take its usage: {error}")
                self._told[name] = days

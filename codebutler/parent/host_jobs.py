"""A host's jobs: it reports the ``jobs.yaml`` of its repositories to the gateway, whose clock runs them; files are
watched here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from codebutler.config.registry import Provenance
from codebutler.config.schema import RepoSettings
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError
from codebutler.intake.repos import Served
from codebutler.parent.local import Record
from codebutler.platform.tasks import Tasks
from codebutler.protocol.hosts import JobsReport, WatchReport
from codebutler.schedule.files import JobFiles, own_sources
from codebutler.schedule.jobs import FILE_NAME, Job
from codebutler.schedule.scheduler import LOOK_S, SETTLE_S
from codebutler.schedule.watch import Watchers
from codebutler.supervisor.port import Services

MAX_TROUBLE_CHARS = 2000


@dataclass(frozen=True, slots=True)
class HostedHere:
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
        provenance: Provenance,
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

"""Starts jobs when files of their repository change."""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import aclosing
from pathlib import Path

from codebutler.domain.errors import CodeButlerError
from codebutler.schedule.changes import Changes, directories
from codebutler.schedule.jobs import Job

log = logging.getLogger("codebutler.schedule")


class Watchers:
    """One watcher for each repository that has a job with ``watch``."""

    def __init__(self, path_of: Callable[[str], Path | None], on_change: Callable[[Job], None]) -> None:
        self._path_of = path_of
        self._on_change = on_change
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._jobs: tuple[Job, ...] = ()
        self._told: dict[str, str] = {}

    def use(self, jobs: Iterable[Job]) -> None:
        """These jobs are to be started from now on."""
        self._jobs = tuple(job for job in jobs if job.watch and job.enabled)
        wanted = {job.repo for job in self._jobs}
        for repo in self._tasks.keys() - wanted:
            self._tasks.pop(repo).cancel()
        for repo in wanted - {name for name, task in self._tasks.items() if not task.done()}:
            path = self._path_of(repo)
            if path is not None:
                self._tasks[repo] = asyncio.create_task(self._watch(repo, path), name=f"watch {repo}")

    async def close(self) -> None:
        """Watch nothing any more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def settled(self) -> None:
        """Wait until there is none at work: each has failed, or there was none."""
        await asyncio.gather(*self._tasks.values())

    async def _watch(self, repo: str, path: Path) -> None:
        try:
            async with aclosing(Changes(path, directories).told()) as told:
                async for names in told:
                    self._changed(repo, path, names)
        except (OSError, RuntimeError, CodeButlerError) as error:
            # Tried again with the next reading of the files.
            if self._told.get(repo) != str(error):
                log.warning("[%s] its files cannot be watched: %s", repo, error)
            self._told[repo] = str(error)

    def _changed(self, repo: str, path: Path, names: Iterable[str]) -> None:
        below = [name for each in names if not (name := os.path.relpath(each, path)).startswith("..")]
        for job in self._jobs:
            if job.repo == repo and concerns(job.watch, below):
                self._on_change(job)


def concerns(patterns: Iterable[str], names: Iterable[str]) -> bool:
    """Whether one of the files (relative, with ``/``) fits one of the patterns; ``*`` fits ``/`` too."""
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)

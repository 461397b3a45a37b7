"""Starts jobs when files of their repository change."""

from __future__ import annotations

import asyncio
import fnmatch
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from watchfiles import Change, awatch

from codebutler.schedule.jobs import Job

QUIET_MS = 1000
IGNORED = frozenset(
    {".git", ".codebutler", "node_modules", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache"}
)

log = logging.getLogger("codebutler.schedule")


class Watchers:
    """One watcher for each repository that has a job with ``watch``."""

    def __init__(self, path_of: Callable[[str], Path | None], on_change: Callable[[Job], None]) -> None:
        self._path_of = path_of
        self._on_change = on_change
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._jobs: tuple[Job, ...] = ()

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

    async def _watch(self, repo: str, path: Path) -> None:
        try:
            async for changes in awatch(path, watch_filter=_counts, debounce=QUIET_MS, step=100):
                names = [Path(changed).relative_to(path).as_posix() for _, changed in changes]
                for job in self._jobs:
                    if job.repo == repo and concerns(job.watch, names):
                        self._on_change(job)
        except (OSError, RuntimeError) as error:
            # Looked at again with the next reading of the files.
            log.warning("[%s] its files cannot be watched: %s", repo, error)


def concerns(patterns: Iterable[str], names: Iterable[str]) -> bool:
    """Whether one of the files (relative, with ``/``) fits one of the patterns; ``*`` fits ``/`` too."""
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _counts(_: Change, path: str) -> bool:
    return not IGNORED.intersection(Path(path).parts)

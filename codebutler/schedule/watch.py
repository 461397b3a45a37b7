"""Starts jobs when files of their repository change.

The repository is not trusted: links in it are not followed, or one to `/` would have this process watch the whole
machine. So each directory is watched by itself, and found by a walk of ours.
"""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import aclosing
from pathlib import Path

from watchfiles import Change, awatch

from codebutler.errors import CodeButlerError
from codebutler.schedule.jobs import Job

QUIET_MS = 1000
IGNORED = frozenset(
    {".git", ".codebutler", "node_modules", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache"}
)
MAX_DIRECTORIES = 4000
"""Of one repository: the system lets a user watch a limited number in all (inotify(7), max_user_watches)."""

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
        watched: set[str] = set()
        try:
            while True:
                found = await asyncio.to_thread(directories, path)
                # What came with a new directory came before anybody watched that.
                fresh = found - watched if watched else set()
                self._changed(repo, path, await asyncio.to_thread(_files_in, fresh))
                watched = found
                await self._until_it_grows(repo, path, watched)
        except (OSError, RuntimeError, CodeButlerError) as error:
            # Tried again with the next reading of the files.
            if self._told.get(repo) != str(error):
                log.warning("[%s] its files cannot be watched: %s", repo, error)
            self._told[repo] = str(error)

    async def _until_it_grows(self, repo: str, path: Path, watched: Iterable[str]) -> None:
        changing = awatch(*watched, watch_filter=_counts, debounce=QUIET_MS, step=100, recursive=False)
        async with aclosing(changing):
            async for changes in changing:
                names = [name for _, name in changes]
                self._changed(repo, path, names)
                if await asyncio.to_thread(
                    _any_directory, [n for what, n in changes if what == Change.added]
                ):
                    return

    def _changed(self, repo: str, path: Path, names: Iterable[str]) -> None:
        below = [name for each in names if not (name := os.path.relpath(each, path)).startswith("..")]
        for job in self._jobs:
            if job.repo == repo and concerns(job.watch, below):
                self._on_change(job)


def concerns(patterns: Iterable[str], names: Iterable[str]) -> bool:
    """Whether one of the files (relative, with ``/``) fits one of the patterns; ``*`` fits ``/`` too."""
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


def directories(root: Path) -> set[str]:
    """``root`` and every directory below it that is no link and counts.

    Raises CodeButlerError if there are too many to watch, OSError if ``root`` cannot be read.
    """
    root.stat()
    found: set[str] = set()
    for here, names, _, _ in os.fwalk(root):
        found.add(here)
        names[:] = [name for name in names if name not in IGNORED]
        if len(found) > MAX_DIRECTORIES:
            raise CodeButlerError(
                f"there are more than {MAX_DIRECTORIES} directories: use `cron` instead of `watch`"
            )
    return found


def _files_in(places: Iterable[str]) -> list[str]:
    found: list[str] = []
    for place in places:
        try:
            found += [entry.path for entry in os.scandir(place) if entry.is_file(follow_symlinks=False)]
        except OSError:
            continue  # it was here for a moment only
    return found


def _any_directory(names: Iterable[str]) -> bool:
    return any(path.is_dir() and not path.is_symlink() for path in map(Path, names))


def _counts(_: Change, path: str) -> bool:
    return not IGNORED.intersection(Path(path).parts)

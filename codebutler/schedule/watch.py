"""Starts jobs when files of their repository change."""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, suppress
from pathlib import Path

from watchfiles import Change, awatch

from codebutler.domain.errors import CodeButlerError
from codebutler.schedule.jobs import Job

QUIET_MS = 1000
STEP_MS = 100
"""A change is reported after a moment without another one, or ``QUIET_MS`` after the first."""
BOTH_S = 1.5
"""How long an old watcher runs next to its successor: longer than it may delay a change."""
ROUNDS = 3
"""While new directories keep appearing: how often to look for more before changes are reported."""
IGNORED = frozenset(
    {".git", ".codebutler", "node_modules", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache"}
)
MAX_DIRECTORIES = 4000
"""Per repository: the system limits the watches of a user (inotify(7), max_user_watches)."""

Seen = set[tuple[Change, str]]

log = logging.getLogger("codebutler.schedule")


class Changes:
    """Reports which files below ``root`` have changed, including those in new directories. Iterate ``told``; ``walk``
    finds the directories.

    The repository is not trusted: links in it are not followed, since one to `/` would make this process watch the
    whole machine. So each directory is watched individually. A watcher cannot add directories: for new ones, a new
    watcher starts before the old one ends, so that nothing is missed.
    """

    def __init__(self, root: Path, walk: Callable[[Path], set[str]]) -> None:
        self._root = root
        self._walk = walk
        self._watched: set[str] = set()
        self._seen: asyncio.Queue[Seen | Exception] = asyncio.Queue()
        self._watching: asyncio.Task[None] | None = None

    async def told(self) -> AsyncGenerator[set[str]]:
        """Yields sets of changed paths.

        Raises CodeButlerError if there are too many directories, OSError or RuntimeError if they cannot be watched.
        """
        names: Seen = set()
        came: set[str] = set()
        look, rounds = True, 0
        try:
            while True:
                more, look = await self._renew(came) if look else (await self._next(), False)
                came = await asyncio.to_thread(_directories_in, more)
                names |= more
                look = look or bool(came)
                rounds = rounds + 1 if look else 0
                if names and rounds % ROUNDS == 0:
                    yield {name for _, name in names}
                    names = set()
        finally:
            await _end(self._watching)

    async def _renew(self, came: set[str]) -> tuple[Seen, bool]:
        """Watch the current directories if some are new; returns what has changed meanwhile, and whether to look again.
        ``came``: directories known to be new, even if their path was watched before."""
        found = await asyncio.to_thread(self._walk, self._root)
        fresh = (found - self._watched) | (came & found)
        if not fresh:
            return set(), False
        older = self._watching
        try:
            self._watching = await self._begin(found)
        except FileNotFoundError:
            self._watched -= came
            return set(), True  # one of them existed only for a moment
        self._watched, names = found, set[tuple[Change, str]]()
        if older is not None:
            # Files in a new directory may be older than its watch.
            names = {(Change.added, name) for name in await asyncio.to_thread(_files_in, fresh)}
            names |= await self._meanwhile(older)
        return names, True

    async def _begin(self, places: set[str]) -> asyncio.Task[None]:
        watching = asyncio.create_task(self._watch(places), name=f"watch {self._root}")
        await asyncio.sleep(0)  # let it start before it waits for the first time
        if watching.done():
            watching.result()
        watching.add_done_callback(self._ended)
        return watching

    def _ended(self, watching: asyncio.Task[None]) -> None:
        if not watching.cancelled() and isinstance(error := watching.exception(), Exception):
            self._seen.put_nowait(error)

    async def _watch(self, places: set[str]) -> None:
        changing = awatch(*places, watch_filter=_counts, debounce=QUIET_MS, step=STEP_MS, recursive=False)
        async with aclosing(changing):
            async for changes in changing:
                self._seen.put_nowait(changes)

    async def _meanwhile(self, older: asyncio.Task[None]) -> Seen:
        """What both watchers have seen; the old one ends."""
        names: Seen = set()
        with suppress(TimeoutError):
            async with asyncio.timeout(BOTH_S):
                while True:
                    names |= await self._next()
        await _end(older)
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(2 * STEP_MS / 1000):
                    names |= await self._next()
        return names

    async def _next(self) -> Seen:
        seen = await self._seen.get()
        if isinstance(seen, Exception):
            raise seen
        return seen


def directories(root: Path) -> set[str]:
    """``root`` and every directory below it that counts and is not a link.

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


async def _end(watching: asyncio.Task[None] | None) -> None:
    if watching is not None:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def _files_in(places: Iterable[str]) -> list[str]:
    found: list[str] = []
    for place in places:
        try:
            found += [entry.path for entry in os.scandir(place) if entry.is_file(follow_symlinks=False)]
        except OSError:
            continue  # it existed only for a moment
    return found


def _directories_in(changes: Seen) -> set[str]:
    added = (Path(name) for what, name in changes if what == Change.added)
    return {str(path) for path in added if path.is_dir() and not path.is_symlink()}


def _counts(_: Change, path: str) -> bool:
    return not IGNORED.intersection(Path(path).parts)


class Watchers:
    """One watcher for each repository that has a job with ``watch``."""

    def __init__(self, path_of: Callable[[str], Path | None], on_change: Callable[[Job], None]) -> None:
        self._path_of = path_of
        self._on_change = on_change
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._jobs: tuple[Job, ...] = ()
        self._told: dict[str, str] = {}

    def use(self, jobs: Iterable[Job]) -> None:
        """Start these jobs on changes from now on."""
        self._jobs = tuple(job for job in jobs if job.watch and job.enabled)
        wanted = {job.repo for job in self._jobs}
        for repo in self._tasks.keys() - wanted:
            self._tasks.pop(repo).cancel()
        for repo in wanted - {name for name, task in self._tasks.items() if not task.done()}:
            path = self._path_of(repo)
            if path is not None:
                self._tasks[repo] = asyncio.create_task(self._watch(repo, path), name=f"watch {repo}")

    async def close(self) -> None:
        """Stop watching."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _watch(self, repo: str, path: Path) -> None:
        try:
            async with aclosing(Changes(path, directories).told()) as told:
                async for names in told:
                    self._changed(repo, path, names)
        except (OSError, RuntimeError, CodeButlerError) as error:
            # Retried when the files are next read.
            if self._told.get(repo) != str(error):
                log.warning("[%s] files cannot be watched: %s", repo, error)
            self._told[repo] = str(error)

    def _changed(self, repo: str, path: Path, names: Iterable[str]) -> None:
        below = [name for each in names if not (name := os.path.relpath(each, path)).startswith("..")]
        for job in self._jobs:
            if job.repo == repo and concerns(job.watch, below):
                self._on_change(job)


def concerns(patterns: Iterable[str], names: Iterable[str]) -> bool:
    """Whether one of the files (relative, with ``/``) matches one of the patterns; ``*`` matches ``/`` too."""
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)

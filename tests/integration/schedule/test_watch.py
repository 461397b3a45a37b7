"""Jobs that start when files change: what counts as a change, and what a hostile repository cannot make of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import pytest

from codebutler.domain.errors import CodeButlerError
from codebutler.schedule import watch
from codebutler.schedule.jobs import Job, JobPlace, parse_file, place_at
from codebutler.schedule.watch import Changes, Watchers, directories

DEADLINE_S = 60
JOBS = b"""
jobs:
  - {name: all, watch: ['*'], command: make}
  - {name: source, watch: ['src/*.py'], command: make}
  - {name: build, watch: [Makefile], command: make}
"""


@asynccontextmanager
async def watching(repo: Path) -> AsyncIterator[asyncio.Queue[Job]]:
    """What is started, once the watcher is up."""
    jobs = parse_file(JOBS, "jobs.yaml", place_at(JobPlace("shop", "C1"))).jobs
    started: asyncio.Queue[Job] = asyncio.Queue()
    watchers = Watchers(lambda _: repo, started.put_nowait)
    watchers.use(jobs)
    try:
        await until(started, "all", lambda: touch(repo / "up"))
        yield started
    finally:
        await watchers.close()


def touch(file: Path) -> None:
    file.write_text(file.read_text() + "x" if file.exists() else "")


async def until(started: asyncio.Queue[Job], name: str, change: Callable[[], object]) -> None:
    """Change something until the job is started for it: nobody tells when a watcher is up."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            change()
            with suppress(TimeoutError):
                async with asyncio.timeout(2):
                    while (await started.get()).name != name:
                        pass
                    return


@pytest.mark.parametrize(("changed", "job"), [("src/deep/a.py", "source"), ("Makefile", "build")])
async def test_a_change_starts_the_jobs_that_it_concerns(tmp_path: Path, changed: str, job: str) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    async with watching(tmp_path) as started:
        await until(started, job, lambda: touch(tmp_path / changed))


async def test_what_is_in_a_new_directory_counts(tmp_path: Path) -> None:
    async with watching(tmp_path) as started:
        (tmp_path / "src" / "new").mkdir(parents=True)
        (tmp_path / "src" / "new" / "first.py").touch()
        await until(started, "source", lambda: None)
        await until(started, "source", lambda: touch(tmp_path / "src" / "new" / "later.py"))


class Walk:
    """Finds the directories; once it has found ``wanted``, ``then`` is called."""

    def __init__(self, wanted: Path, then: Callable[[], object]) -> None:
        self._wanted = str(wanted)
        self._then: Callable[[], object] | None = then

    def __call__(self, root: Path) -> set[str]:
        found = directories(root)
        if self._then is not None and self._wanted in found:
            then, self._then = self._then, None
            then()
        return found


class Listener:
    """Hears what has changed below ``root``."""

    def __init__(self, root: Path, walk: Callable[[Path], set[str]]) -> None:
        self._told = Changes(root, walk).told()
        self._names: set[str] = set()
        self._more = asyncio.Condition()

    async def listen(self) -> None:
        async with aclosing(self._told) as told:
            async for names in told:
                async with self._more:
                    self._names |= names
                    self._more.notify_all()

    async def hears(self, file: Path) -> None:
        async with self._more:
            await self._more.wait_for(lambda: str(file) in self._names)


@asynccontextmanager
async def listening(root: Path, walk: Callable[[Path], set[str]]) -> AsyncIterator[Listener]:
    """Once it hears."""
    listener = Listener(root, walk)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(listener.listen())
        up = tasks.create_task(listener.hears(root / "up"))
        while not up.done():
            touch(root / "up")
            await asyncio.wait({up}, timeout=1)
        yield listener
        task.cancel()


async def test_no_change_is_lost_while_a_new_directory_is_taken_in(tmp_path: Path) -> None:
    new, other = tmp_path / "new", tmp_path / "Makefile"
    async with listening(tmp_path, Walk(new, other.touch)) as listener:
        new.mkdir()
        await listener.hears(other)


async def test_what_comes_in_a_new_directory_while_it_is_taken_in_counts(tmp_path: Path) -> None:
    new, first, deep = (tmp_path / "new" / name for name in ("", "first.py", "deep/x.py"))

    def fill() -> None:
        first.touch()
        deep.parent.mkdir()
        deep.touch()

    async with listening(tmp_path, Walk(new, fill)) as listener:
        new.mkdir()
        await listener.hears(first)
        await listener.hears(deep)


async def test_a_directory_that_goes_and_comes_again_is_watched_again(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    async with listening(tmp_path, directories) as listener:
        source.rmdir()
        await listener.hears(source)
        source.mkdir()
        (source / "a.py").touch()
        await listener.hears(source / "a.py")
        (source / "b.py").touch()
        await listener.hears(source / "b.py")


async def test_a_directory_that_is_gone_again_disturbs_nothing(tmp_path: Path) -> None:
    moment, new = tmp_path / "moment", tmp_path / "new"
    async with listening(tmp_path, Walk(moment, moment.rmdir)) as listener:
        moment.mkdir()
        new.mkdir()
        (new / "a.py").touch()
        await listener.hears(new / "a.py")
        (tmp_path / "Makefile").touch()
        await listener.hears(tmp_path / "Makefile")


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    repo, outside = tmp_path / "repo", tmp_path / "outside"
    (outside / "src").mkdir(parents=True)
    repo.mkdir()
    (repo / "src").symlink_to(outside)
    async with watching(repo) as started:
        (outside / "a.py").touch()
        (outside / "src" / "b.py").touch()
        (repo / "machine").symlink_to("/")
        # What is changed after that comes with it or after it.
        (repo / "Makefile").touch()
        names: list[str] = []
        async with asyncio.timeout(DEADLINE_S):
            while "build" not in names:
                names.append((await started.get()).name)
        assert "source" not in names


def test_directories_are_found_without_links_and_what_does_not_count(tmp_path: Path) -> None:
    for name in ("src/deep", "node_modules/x", ".git/objects", ".codebutler", "src/__pycache__"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "src" / "up").symlink_to("..")
    assert directories(tmp_path) == {str(tmp_path / name) for name in ("", "src", "src/deep")}


async def test_too_many_are_refused_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "MAX_DIRECTORIES", 2)
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(CodeButlerError, match="more than 2 directories"):
        directories(tmp_path)
    watchers = Watchers(lambda _: tmp_path, lambda _: None)
    jobs = parse_file(JOBS, "jobs.yaml", place_at(JobPlace("shop", "C1"))).jobs
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            watchers.use(jobs)
            await asyncio.gather(*watchers._tasks.values())
    assert [record.message for record in caplog.records].count(caplog.records[0].message) == 1
    assert "use `cron` instead" in caplog.records[0].message

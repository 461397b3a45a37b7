"""Where jobs are defined: ``jobs.yaml`` of the home and of every served repository, checked for changes regularly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from codebutler.config.paths import Home, RepoPaths
from codebutler.config.programs import program_names
from codebutler.config.registry import JobsProvenance
from codebutler.config.resolve import env_file_values
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.refs import NO_CHANNEL, ConversationRef
from codebutler.intake.records import Notes
from codebutler.intake.repos import RepoTable, Served
from codebutler.platform.files import PrivateDir
from codebutler.protocol.capabilities import JobsReport
from codebutler.schedule.jobs import (
    FILE_NAME,
    FileContents,
    Hook,
    Job,
    JobPlace,
    Where,
    parse_file,
    place_at,
    place_in,
)
from codebutler.schedule.state import key_of


class JobSource(Struct, frozen=True):
    """Where a ``jobs.yaml`` is read. ``repo`` is "" for the home's, which alone has an ``env``: the variables that hold
    its hooks' secrets. ``read`` returns the content and the file's path. Both may raise CodeButlerError; without a file
    ``read`` returns None or raises FileNotFoundError."""

    repo: str
    read: Callable[[], tuple[bytes | None, str]]
    where: Where
    places: tuple[JobPlace, ...]
    env: Callable[[], Mapping[str, str]] | None = None

    @property
    def channel(self) -> ConversationRef:
        """The channel in which changes of the file are reported: a repository's own, "" for the home."""
        return self.places[0].channel if self.repo else NO_CHANNEL


class News(Struct, frozen=True):
    """One line about what has changed since the last look; ``repo`` and ``channel`` are "" for the home's file.
    ``trouble``: a person must fix the file."""

    repo: str
    channel: ConversationRef
    line: str
    trouble: bool = False


class FoundJobs(Struct, frozen=True):
    """All jobs by their key, all hooks by name. ``unsettled``: a file is being written, so look again soon. ``unread``:
    repositories whose jobs are not known, since no version of their file has been valid so far; "" if it is the
    home's."""

    jobs: Mapping[str, Job]
    hooks: Mapping[str, Hook] = msgspec.field(default_factory=dict)
    news: tuple[News, ...] = ()
    unsettled: bool = False
    unread: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Reading:
    data: bytes | None
    places: tuple[JobPlace, ...]
    contents: FileContents = field(compare=False)
    trouble: str = ""
    env: Mapping[str, str] | None = field(default=None, repr=False)


class JobFiles(Struct):
    """Reads all files; the last valid version stays in force while a file is broken. ``own`` are the jobs that settings
    ask for, by key. ``absent``: repositories that cannot be served now.

    A change counts once it has been read twice: editors empty a file before they write it, and all jobs would be gone
    in between.
    """

    sources: Callable[[], list[JobSource]]
    own: Callable[[], Mapping[str, Job]] = dict
    absent: Callable[[], Iterable[str]] = tuple
    _read: dict[str, _Reading] = msgspec.field(default_factory=dict)
    _seen_once: dict[str, _Reading] = msgspec.field(default_factory=dict)

    def look(self) -> FoundJobs:
        """Read what has changed. Blocks; never raises."""
        news: list[News] = []
        jobs = dict(self.own())
        current: dict[str, _Reading] = {}
        seen_once: dict[str, _Reading] = {}
        for source in self.sources():
            before = self._read.get(source.repo)
            now = _look(source, before)
            if before is not None and now != before and now != self._seen_once.get(source.repo):
                seen_once[source.repo] = now
                now = before
            current[source.repo] = now
            trouble = bool(now.trouble)
            news += [News(source.repo, source.channel, line, trouble) for line in _news(before, now)]
            for job in now.contents.jobs:
                jobs.setdefault(key_of(job), job)
        self._read, self._seen_once = current, seen_once
        hooks = {hook.name: hook for read in current.values() for hook in read.contents.hooks}
        unread = {repo for repo, read in current.items() if read.trouble and not read.contents.jobs}
        return FoundJobs(jobs, hooks, tuple(news), bool(seen_once), frozenset({*unread, *self.absent()}))

    def content(self, repo: str) -> tuple[bytes | None, str]:
        """The repository's file as it was last read, and why it does not count; None and "" without one."""
        read = self._read.get(repo)
        return (read.data, read.trouble if read.data is None else "") if read else (None, "")


def read_in(
    open_directory: Callable[[], PrivateDir], objection: Callable[[bytes], str]
) -> tuple[bytes | None, str]:
    """The file in a directory, and its path. ``objection`` says why one with some content is not accepted, "" if it is.
    Raises FileNotFoundError, PermissionError, CodeButlerError."""
    with open_directory() as directory:
        data = directory.read(FILE_NAME)
        path = str(directory.path / FILE_NAME)
        if data is not None and (why := objection(data)):
            raise CodeButlerError(f"{path} {why}")
        return data, path


def _look(source: JobSource, before: _Reading | None) -> _Reading:
    kept = before.contents if before is not None else FileContents()
    try:
        data, path = source.read()
        env = source.env() if source.env is not None else None
    except FileNotFoundError:
        data = env = None
    except (CodeButlerError, PermissionError) as error:
        now = _Reading(None, source.places, kept, str(error))
        return before if before and before.trouble == now.trouble else now
    if before is not None and (before.data, before.places, before.env) == (data, source.places, env):
        return before
    if data is None:
        return _Reading(None, source.places, FileContents(), env=env)
    try:
        return _Reading(data, source.places, parse_file(data, path, source.where, env), env=env)
    except CodeButlerError as error:
        return _Reading(data, source.places, kept, str(error), env)


def _news(before: _Reading | None, now: _Reading) -> list[str]:
    if now == before:
        return []
    if now.trouble:
        stay = before is not None
        return [f"{now.trouble}; {'the previous jobs stay in force' if stay else 'none of its jobs run'}"]
    if before is None:
        return []
    if told := difference(*({job.name: job.digest for job in each.contents.jobs} for each in (before, now))):
        return [f"jobs reloaded: {told}"]
    return ["jobs reloaded: the file is valid again"] if before.trouble else []


def difference(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """``added a, b; removed c; changed d``; "" if nothing is different."""
    words = (
        ("added", after.keys() - before.keys()),
        ("removed", before.keys() - after.keys()),
        ("changed", {name for name in after.keys() & before.keys() if after[name] != before[name]}),
    )
    return "; ".join(f"{verb} {', '.join(sorted(names))}" for verb, names in words if names)


def job_sources(
    home: Home, table: RepoTable, env: Mapping[str, str], provenance: JobsProvenance, told: ToldJobs
) -> list[JobSource]:
    """Every ``jobs.yaml`` that counts: the home's, which may name any repository, and each repository's own."""
    places = tuple(map(_place, table.served))
    return [
        JobSource(
            "",
            partial(read_in, home.open, lambda _: ""),
            place_in(places),
            places,
            lambda: {**env_file_values(home), **env},
        ),
        *own_sources(table.served, provenance, told),
    ]


def own_sources(
    repos: Iterable[Served], provenance: JobsProvenance, told: ToldJobs | None = None
) -> list[JobSource]:
    """The ``jobs.yaml`` of the repositories: on this disk, or as their hosts have reported it (``told``)."""
    sources = []
    for each in repos:
        place = _place(each)
        if each.entry.host and told is not None:
            read = partial(told.read, place.repo)
        else:
            there, objection = RepoPaths(Path(each.entry.path)), partial(provenance.objection, each.entry)
            read = partial(read_in, there.open, objection)
        sources.append(JobSource(place.repo, read, place_at(place), (place,)))
    return sources


def _place(served: Served) -> JobPlace:
    return JobPlace(
        served.entry.name, served.channel_id, served.config.channel_name, program_names(served.config)
    )


class ToldJobs:
    """The ``jobs.yaml`` of repositories on hosts: each host reads its own, and reports changes. ``load`` once. Reports
    are noted, so that the schedule continues while a host is away."""

    def __init__(self, notes: Notes) -> None:
        self.on_watched: list[Callable[[str, str], Awaitable[None]]] = []
        """Called for each change of watched files, with the job REPO/NAME and a key of the change."""
        self._notes = notes
        self._told: dict[str, JobsReport] = {}

    async def load(self, repos: Iterable[str]) -> None:
        """Read the noted reports about these repositories. Raises StoreError."""
        await asyncio.gather(*map(self._recall, repos))

    async def _recall(self, repo: str) -> None:
        if note := await self._notes.note(_note_of(repo)):
            self._told[repo] = msgspec.json.decode(note, type=JobsReport)

    async def keep(self, repo: str, report: JobsReport) -> None:
        """Note its host's report. Raises StoreError."""
        await self._notes.keep_note(_note_of(repo), msgspec.json.encode(report).decode())
        self._told[repo] = report

    def read(self, repo: str) -> tuple[bytes | None, str]:
        """The file's content and its path. Raises FileNotFoundError, and CodeButlerError if it does not count."""
        report = self._told.get(repo)
        if report is None:
            raise FileNotFoundError
        if report.trouble:
            raise CodeButlerError(report.trouble)
        return report.data, report.path


def _note_of(repo: str) -> str:
    return f"jobs of {repo}"

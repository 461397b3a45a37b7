"""Where jobs are defined: ``jobs.yaml`` of the home and of every served repository, checked for changes regularly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from codebutler.config.paths import Home, RepoPaths
from codebutler.config.programs import program_names
from codebutler.config.registry import Provenance
from codebutler.config.resolve import env_file_values
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.refs import NO_CHANNEL, ConversationRef
from codebutler.intake.repos import RepoTable
from codebutler.platform.files import PrivateDir
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


@dataclass(frozen=True, slots=True)
class JobSource:
    """A directory whose ``jobs.yaml`` is read. ``repo`` is "" for the home's, which alone has an ``env``: the variables
    that hold its hooks' secrets. ``objection`` says why a file with some content is not accepted, "" if it is. Both may
    raise CodeButlerError."""

    repo: str
    open: Callable[[], PrivateDir]
    where: Where
    places: tuple[JobPlace, ...]
    env: Callable[[], Mapping[str, str]] | None = None
    objection: Callable[[bytes], str] = lambda _: ""

    @property
    def channel(self) -> ConversationRef:
        """The channel in which changes of the file are reported: a repository's own, "" for the home."""
        return self.places[0].channel if self.repo else NO_CHANNEL


@dataclass(frozen=True, slots=True)
class News:
    """One line about what has changed since the last look; ``repo`` and ``channel`` are "" for the home's file.
    ``trouble``: a person must fix the file."""

    repo: str
    channel: ConversationRef
    line: str
    trouble: bool = False


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """All jobs by their key, all hooks by name. ``unsettled``: a file is being written, so look again soon."""

    jobs: Mapping[str, Job]
    hooks: Mapping[str, Hook] = field(default_factory=dict)
    news: tuple[News, ...] = ()
    unsettled: bool = False


@dataclass(frozen=True, slots=True)
class _Reading:
    data: bytes | None
    places: tuple[JobPlace, ...]
    contents: FileContents = field(compare=False)
    trouble: str = ""
    env: Mapping[str, str] | None = field(default=None, repr=False)


@dataclass
class JobFiles:
    """Reads all files; the last valid version stays in force while a file is broken. ``own`` are the jobs that settings
    ask for, by key.

    A change counts once it has been read twice: editors empty a file before they write it, and all jobs would be gone
    in between.
    """

    sources: Callable[[], list[JobSource]]
    own: Callable[[], Mapping[str, Job]] = dict
    _read: dict[str, _Reading] = field(default_factory=dict)
    _seen_once: dict[str, _Reading] = field(default_factory=dict)

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
        return FoundJobs(jobs, hooks, tuple(news), unsettled=bool(seen_once))


def _look(source: JobSource, before: _Reading | None) -> _Reading:
    kept = before.contents if before is not None else FileContents()
    try:
        with source.open() as directory:
            data = directory.read(FILE_NAME)
            env = source.env() if source.env is not None else None
            path = directory.path / FILE_NAME
            if data is not None and (why := source.objection(data)):
                raise CodeButlerError(f"{path} {why}")
    except FileNotFoundError:
        data = env = None
    except (CodeButlerError, PermissionError) as error:
        now = _Reading(None, source.places, kept, f"{error}; the previous jobs stay in force")
        return before if before and before.trouble == now.trouble else now
    if before is not None and (before.data, before.places, before.env) == (data, source.places, env):
        return before
    if data is None:
        return _Reading(None, source.places, FileContents(), env=env)
    try:
        return _Reading(data, source.places, parse_file(data, str(path), source.where, env), env=env)
    except CodeButlerError as error:
        return _Reading(data, source.places, kept, f"{error}; the previous jobs stay in force", env)


def _news(before: _Reading | None, now: _Reading) -> list[str]:
    if now == before:
        return []
    if now.trouble:
        return [now.trouble]
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
    home: Home, table: RepoTable, env: Mapping[str, str], provenance: Provenance
) -> list[JobSource]:
    """Every directory whose ``jobs.yaml`` counts: the home's, which may name any repository, and each repository's
    own."""
    places = tuple(
        JobPlace(each.entry.name, each.channel_id, each.config.channel_name, program_names(each.config))
        for each in table.served
    )
    own = [
        JobSource(
            place.repo,
            RepoPaths(Path(each.entry.path)).open,
            place_at(place),
            (place,),
            objection=partial(provenance.objection, each.entry),
        )
        for each, place in zip(table.served, places, strict=True)
    ]
    return [
        JobSource("", home.open, place_in(places), places, lambda: {**env_file_values(home), **env}),
        *own,
    ]

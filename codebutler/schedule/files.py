"""Where jobs are written: ``jobs.yaml`` of the home and of every served repository, read again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from codebutler.config.files import PrivateDir
from codebutler.errors import CodeButlerError
from codebutler.schedule.book import key_of
from codebutler.schedule.jobs import FILE_NAME, Job, Place, Spec, parse_jobs


@dataclass(frozen=True, slots=True)
class Source:
    """A directory whose ``jobs.yaml`` is read. ``repo`` is "" for the home's."""

    repo: str
    open: Callable[[], PrivateDir]
    place: Callable[[Spec], Place | None]
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """All jobs by their key. ``news``: (repository or "", one line) of what has changed since the last look."""

    jobs: Mapping[str, Job]
    news: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Read:
    data: bytes | None
    places: tuple[Place, ...]
    jobs: tuple[Job, ...] = ()
    trouble: str = ""


@dataclass
class JobFiles:
    """Looks at every file; what was good stays in force while a file is broken."""

    sources: Callable[[], list[Source]]
    _read: dict[str, _Read] = field(default_factory=dict)

    def look(self) -> Found:
        """Read what has changed. Blocks; raises nothing."""
        news: list[tuple[str, str]] = []
        jobs: dict[str, Job] = {}
        current: dict[str, _Read] = {}
        for source in self.sources():
            before = self._read.get(source.repo)
            now = _look(source, before)
            current[source.repo] = now
            if before is not None and now is not before:
                news += [(source.repo, line) for line in _news(before, now)]
            elif before is None and now.trouble:
                news.append((source.repo, now.trouble))
            for job in now.jobs:
                jobs.setdefault(key_of(job), job)
        self._read = current
        return Found(jobs, tuple(news))


def _look(source: Source, before: _Read | None) -> _Read:
    kept = before.jobs if before is not None else ()
    try:
        with source.open() as directory:
            data = directory.read(FILE_NAME)
            path = directory.path / FILE_NAME
    except FileNotFoundError:
        data = None
    except (CodeButlerError, PermissionError) as error:
        trouble = f"{error}; the jobs stay as they were"
        return before if before and before.trouble == trouble else _Read(None, source.places, kept, trouble)
    if before is not None and (before.data, before.places) == (data, source.places):
        return before
    if data is None:
        return _Read(None, source.places)
    try:
        return _Read(data, source.places, parse_jobs(data, str(path), source.place))
    except CodeButlerError as error:
        return _Read(data, source.places, kept, f"{error}; the jobs stay as they were")


def _news(before: _Read, now: _Read) -> list[str]:
    if now.trouble:
        return [now.trouble]
    old, new = ({job.name: job.digest for job in each.jobs} for each in (before, now))
    words = [
        ("added", sorted(new.keys() - old.keys())),
        ("removed", sorted(old.keys() - new.keys())),
        ("changed", sorted(name for name in new.keys() & old.keys() if new[name] != old[name])),
    ]
    told = "; ".join(f"{verb} {', '.join(names)}" for verb, names in words if names)
    if told:
        return [f"jobs read again: {told}"]
    return ["jobs read again: the file is in order"] if before.trouble else []

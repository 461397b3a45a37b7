"""``jobs.yaml`` of repositories on hosts: each host reads its own, and tells it when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from codebutler.domain.errors import CodeButlerError
from codebutler.intake.records import Notes
from codebutler.protocol.hosts import JobsReport


class ToldJobs:
    """``load`` once. What was told is noted, so that the schedule goes on while a host is away."""

    def __init__(self, notes: Notes) -> None:
        self.on_watched: list[Callable[[str, str], Awaitable[None]]] = []
        """Told of each change of files: the job REPO/NAME, and a key of the change."""
        self._notes = notes
        self._told: dict[str, JobsReport] = {}

    async def load(self, repos: Iterable[str]) -> None:
        """Read what was told of these repositories. Raises StoreError."""
        await asyncio.gather(*map(self._recall, repos))

    async def _recall(self, repo: str) -> None:
        if note := await self._notes.note(_note(repo)):
            self._told[repo] = msgspec.json.decode(note, type=JobsReport)

    async def keep(self, repo: str, report: JobsReport) -> None:
        """Its host says this. Raises StoreError."""
        await self._notes.keep_note(_note(repo), msgspec.json.encode(report).decode())
        self._told[repo] = report

    def read(self, repo: str) -> tuple[bytes | None, str]:
        """The file's content and its path. Raises FileNotFoundError, and CodeButlerError if it does not count."""
        report = self._told.get(repo)
        if report is None:
            raise FileNotFoundError
        if report.trouble:
            raise CodeButlerError(report.trouble)
        return report.data, report.path


def _note(repo: str) -> str:
    return f"jobs of {repo}"

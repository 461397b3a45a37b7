"""Merge requests, their jobs and comments at GitLab. Source: GitLab REST API v4, ``merge_requests``, ``notes``,
``repository/commits/{sha}/statuses`` and ``jobs/{id}/trace``. All of it is untrusted: code that shows it must bound and
escape it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from msgspec import Struct

from codebutler_worker.forge.api import (
    FailedJob,
    Number,
    Pull,
    PullChecks,
    PullComment,
    PullState,
    Service,
    bound_text,
    decode_answer,
    summarize_checks,
)
from codebutler_worker.forge.remote import ForgeError

ENDED = frozenset({"success", "failed", "canceled", "skipped", "manual"})


class _Merge(Struct):
    iid: Number
    web_url: str
    state: str = "opened"
    sha: str | None = None


class _Pipeline(Struct):
    """A pipeline job, or a status that another service set on the commit."""

    id: Number
    name: str
    status: str
    allow_failure: bool | None = None
    description: str | None = None


class _User(Struct):
    username: str


class _Position(Struct):
    new_path: str | None = None
    new_line: int | None = None


class _Note(Struct):
    id: Number
    body: str | None = None
    author: _User | None = None
    system: bool = False
    position: _Position | None = None


@dataclass(frozen=True, slots=True)
class GitLab(Service):
    """One project on the service."""

    @property
    def root(self) -> str:
        return f"projects/{quote(self.path, safe='')}"

    async def find(self, branch: str) -> Pull | None:
        query = f"merge_requests?state=opened&source_branch={quote(branch, safe='')}"
        found = decode_answer(await self.request("GET", query), list[_Merge])
        return _pull(found[0]) if found else None

    async def open(self, branch: str, base: str, title: str, body: str) -> Pull:
        fields = {"title": title, "source_branch": branch, "target_branch": base, "description": body}
        return _pull(decode_answer(await self.request("POST", "merge_requests", fields), _Merge))

    async def describe(self, number: int, body: str) -> None:
        await self.request("PUT", f"merge_requests/{number}", {"description": body})

    async def get(self, number: int) -> Pull:
        return _pull(decode_answer(await self.request("GET", f"merge_requests/{number}"), _Merge))

    async def checks(self, pull: Pull) -> PullChecks:
        """The jobs of its newest commit; those that are allowed to fail do not count."""
        place = f"repository/commits/{quote(pull.commit, safe='')}/statuses"
        found: list[_Pipeline] = await self.pages(place, list[_Pipeline])
        failed = [
            FailedJob(each.id, bound_text(each.name), bound_text(each.description or ""))
            for each in found
            if each.status in ("failed", "canceled") and not each.allow_failure
        ]
        return summarize_checks(len(found), failed, pending=any(each.status not in ENDED for each in found))

    async def log(self, job: FailedJob) -> bytes:
        """The end of a failed job's log, or what another service reported."""
        try:
            return await self.api.fetch_tail(f"{self.root}/jobs/{job.id}/trace")
        except ForgeError:
            return job.details.encode()

    async def comments(self, number: int, seen: Mapping[str, int]) -> list[PullComment]:
        notes: list[_Note] = await self.pages(
            f"merge_requests/{number}/notes", list[_Note], more="&sort=asc&order_by=created_at"
        )
        last = seen.get("note", 0)
        return [_comment(note) for note in notes if note.id > last and not note.system]


def _pull(answer: _Merge) -> Pull:
    states: Mapping[str, PullState] = {"merged": "merged", "closed": "closed"}
    return Pull(answer.iid, answer.web_url, answer.sha or "", states.get(answer.state, "open"))


def _comment(note: _Note) -> PullComment:
    at = note.position
    place = f"{at.new_path}:{at.new_line}" if at and at.new_path and at.new_line else ""
    author = note.author.username if note.author else "somebody"
    return PullComment("note", note.id, bound_text(author), bound_text(note.body or ""), bound_text(place))

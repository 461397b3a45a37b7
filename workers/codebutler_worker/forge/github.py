"""Pull requests, their checks and comments at GitHub and GitHub Enterprise. Source: GitHub REST API, ``pulls``,
``check-runs``, ``status``, ``actions/runs``, ``actions/jobs/{id}/logs``, ``comments`` and ``reviews``. All of it is
untrusted: code that shows it must bound and escape it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from msgspec import Struct

from codebutler_worker.forge.api import (
    PAGE,
    FailedJob,
    Number,
    Pull,
    PullChecks,
    PullComment,
    PullState,
    RefusedError,
    Service,
    bound_text,
    decode_answer,
    summarize_checks,
)
from codebutler_worker.forge.remote import ForgeError

T = TypeVar("T")
PASSED = frozenset({"success", "neutral", "skipped"})
MAX_RUNS = 10
FORBIDDEN = 403


class _Branch(Struct, frozen=True):
    sha: str


class _Pull(Struct):
    number: Number
    html_url: str
    state: str = "open"
    merged_at: str | None = None
    head: _Branch = _Branch("")


class _Run(Struct):
    """A check run, or an Actions job or workflow run."""

    id: Number
    name: str | None = None
    status: str | None = None
    conclusion: str | None = None


class _CheckRuns(Struct):
    check_runs: list[_Run]


class _ActionRuns(Struct):
    workflow_runs: list[_Run]


class _Jobs(Struct):
    jobs: list[_Run]


class _Status(Struct):
    id: Number
    context: str
    state: str
    description: str | None = None


class _Statuses(Struct):
    statuses: list[_Status]


class _Author(Struct):
    login: str


class _Comment(Struct):
    id: Number
    body: str | None = None
    user: _Author | None = None
    path: str | None = None
    line: int | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class GitHub(Service):
    """One repository on the service."""

    @property
    def root(self) -> str:
        return f"repos/{self.path}"

    async def find(self, branch: str) -> Pull | None:
        owner = self.path.partition("/")[0]
        query = f"pulls?state=open&head={quote(owner)}:{quote(branch, safe='')}"
        found = await self._get(query, list[_Pull])
        return _pull(found[0]) if found else None

    async def open(self, branch: str, base: str, title: str, body: str) -> Pull:
        fields = {"title": title, "head": branch, "base": base, "body": body}
        return _pull(decode_answer(await self.request("POST", "pulls", fields), _Pull))

    async def describe(self, number: int, body: str) -> None:
        await self.request("PATCH", f"pulls/{number}", {"body": body})

    async def get(self, number: int) -> Pull:
        return _pull(await self._get(f"pulls/{number}", _Pull))

    async def checks(self, pull: Pull) -> PullChecks:
        """The checks of its newest commit, of both kinds."""
        commit = quote(pull.commit, safe="")
        try:
            runs = await self.pages(f"commits/{commit}/check-runs", _CheckRuns, field="check_runs")
        except RefusedError as error:
            if error.status != FORBIDDEN:
                raise
            # A fine-grained personal token cannot read checks, but it can read Actions runs.
            runs = await self._action_jobs(commit)
        statuses = (await self._get(f"commits/{commit}/status?per_page={PAGE}", _Statuses)).statuses
        pending = any(run.status != "completed" for run in runs)
        failed = [FailedJob(run.id, bound_text(run.name or "")) for run in runs if _has_failed(run)]
        failed += [
            FailedJob(0, bound_text(each.context), bound_text(each.description or ""), f"status {each.id}")
            for each in statuses
            if each.state in ("failure", "error")
        ]
        pending = pending or any(each.state == "pending" for each in statuses)
        return summarize_checks(len(runs) + len(statuses), failed, pending=pending)

    async def log(self, job: FailedJob) -> bytes:
        if not job.id:
            return job.details.encode()
        try:
            return await self.api.fetch_tail(f"{self.root}/actions/jobs/{job.id}/logs")
        except ForgeError:
            return b""  # another app's check, or a log that is kept no longer

    async def comments(self, number: int, seen: Mapping[str, int]) -> list[PullComment]:
        kinds = {"said": f"issues/{number}/comments", "line": f"pulls/{number}/comments",
                 "review": f"pulls/{number}/reviews"}  # fmt: skip
        found: list[PullComment] = []
        for kind, path in kinds.items():
            answers = await self.pages(path, list[_Comment])
            found += [_comment(kind, each) for each in answers if each.id > seen.get(kind, 0)]
        return found

    async def _action_jobs(self, commit: str) -> list[_Run]:
        runs = (await self._get(f"actions/runs?head_sha={commit}&per_page={PAGE}", _ActionRuns)).workflow_runs
        found = [run for run in runs if not _has_failed(run)]
        for run in [run for run in runs if _has_failed(run)][:MAX_RUNS]:
            jobs = (await self._get(f"actions/runs/{run.id}/jobs?per_page={PAGE}", _Jobs)).jobs
            found += jobs if any(map(_has_failed, jobs)) else [run]
        return found

    async def _get(self, path: str, kind: type[T]) -> T:
        return decode_answer(await self.request("GET", path), kind)


def _has_failed(run: _Run) -> bool:
    return run.status == "completed" and run.conclusion not in PASSED


def _pull(answer: _Pull) -> Pull:
    state: PullState = "merged" if answer.merged_at else "closed" if answer.state == "closed" else "open"
    return Pull(answer.number, answer.html_url, answer.head.sha, state)


def _comment(kind: str, comment: _Comment) -> PullComment:
    place = f"{comment.path}:{comment.line}" if comment.path and comment.line else comment.path or ""
    text = comment.body or ""
    if kind == "review" and comment.state in ("APPROVED", "CHANGES_REQUESTED"):
        text = f"{comment.state.replace('_', ' ').lower()}{f': {text}' if text else ''}"
    author = comment.user.login if comment.user else "somebody"
    return PullComment(kind, comment.id, bound_text(author), bound_text(text), bound_text(place))

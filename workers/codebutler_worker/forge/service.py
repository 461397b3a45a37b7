"""What the service behind the remote reports about a pull request. All of it is untrusted, whoever runs the service.
Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull request; ``commit`` is its newest, "" if the service does not say."""

    number: int
    url: str
    commit: str = ""
    state: Literal["open", "merged", "closed"] = "open"


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A failed check. ``id`` is 0 if it has no log: then ``told`` is all that is known; ``key`` tells attempts
    apart."""

    id: int
    name: str
    told: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class PullChecks:
    """The checks of a commit taken together. ``key`` stays the same while their results do."""

    state: Literal["none", "pending", "passed", "failed"]
    number: int = 0
    failed: tuple[FailedJob, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True)
class PullComment:
    """A comment on a pull request, possibly on a line of a file. Anybody may have written it. IDs of one ``kind``
    increase."""

    kind: str
    id: int
    author: str
    text: str
    place: str = ""


def checks_of(number: int, failed: Sequence[FailedJob], *, pending: bool) -> PullChecks:
    """The state of ``number`` checks of which these have failed."""
    if pending or not number:
        return PullChecks("pending" if pending else "none", number, tuple(failed))
    if not failed:
        return PullChecks("passed", number, key="passed")
    attempts = "\n".join(sorted(f"{job.id} {job.key} {job.name}" for job in failed))
    return PullChecks("failed", number, tuple(failed), hashlib.sha256(attempts.encode()).hexdigest()[:16])


class Service(Protocol):
    """One repository at its service. Every method raises ForgeError."""

    async def find(self, branch: str) -> Pull | None:
        """The open pull request of a branch of this repository."""

    async def open(self, branch: str, base: str, title: str, body: str) -> Pull:
        """Open one."""

    async def describe(self, number: int, body: str) -> None:
        """Replace its description."""

    async def get(self, number: int) -> Pull:
        """Its state."""

    async def checks(self, pull: Pull) -> PullChecks:
        """The checks of its newest commit."""

    async def log(self, job: FailedJob) -> bytes:
        """The end of a failed job's log; empty if the service has none."""

    async def comments(self, number: int, seen: Mapping[str, int]) -> list[PullComment]:
        """What is newer than the ``seen`` ones, by kind, oldest first."""

"""What a host tells its gateway of a repository, beside what its worker says."""

from __future__ import annotations

from msgspec import Struct

from codebutler.protocol.messages import DayUse


class JobsReport(Struct, frozen=True, kw_only=True, tag_field="kind", tag="jobs"):
    """The repository's ``jobs.yaml``: ``data`` is what it holds, None if there is none or it does not count, and then
    ``trouble`` says why, "" if it is just not there. ``path``: where, for people."""

    data: bytes | None
    path: str
    trouble: str = ""


class WatchReport(Struct, frozen=True, kw_only=True, tag_field="kind", tag="watch"):
    """Files that the job watches have changed; ``key`` is the same whenever this is repeated."""

    job: str
    key: str


class UseReport(Struct, frozen=True, kw_only=True, tag_field="kind", tag="use"):
    """What the repository has used, by day (ISO 8601): all of this month, and of the last week."""

    days: dict[str, DayUse]


HostReport = JobsReport | WatchReport | UseReport

"""What a host reports to its gateway about a repository, in addition to its worker's messages."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from codebutler.platform.files import MAX_CONFIG_BYTES
from codebutler.protocol.messages import DayUse
from codebutler.protocol.runs import LedgerRow

MOST_TOLD = 500


class JobsReport(Struct, frozen=True, kw_only=True, tag_field="kind", tag="jobs"):
    """The repository's ``jobs.yaml``: ``data``: its content; None if the file is missing, or does not count for the
    reason in ``trouble``. ``path``: where it is, for people."""

    data: Annotated[bytes, Meta(max_length=MAX_CONFIG_BYTES)] | None
    path: Annotated[str, Meta(max_length=10_000)]
    trouble: Annotated[str, Meta(max_length=10_000)] = ""


class WatchReport(Struct, frozen=True, kw_only=True, tag_field="kind", tag="watch"):
    """Files that the job watches have changed; ``key`` is the same whenever this is repeated."""

    job: Annotated[str, Meta(max_length=200)]
    key: Annotated[str, Meta(max_length=64)]


class UseReport(Struct, frozen=True, kw_only=True, tag_field="kind", tag="use"):
    """What the repository has used, by day (ISO 8601): all of this month, and of the last week."""

    days: Annotated[dict[str, DayUse], Meta(max_length=62)]


class RunsReport(Struct, frozen=True, kw_only=True, tag_field="kind", tag="runs"):
    """Rows of the repository's ledger, new or changed since the last report; ``programs`` names the agents among them
    that call no model. Sent only to a gateway that has said which rows it has."""

    rows: Annotated[tuple[LedgerRow, ...], Meta(max_length=MOST_TOLD)]
    programs: Annotated[frozenset[str], Meta(max_length=MOST_TOLD)] = frozenset()


HostReport = JobsReport | WatchReport | UseReport | RunsReport

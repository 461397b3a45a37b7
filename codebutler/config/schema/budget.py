"""The section about what agents may use up. Pure."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler.config.schema.bounds import Section


class Limit(Section, frozen=True):
    """A daily budget; None = unlimited. Minutes are those in which an agent works."""

    usd_per_day: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    tokens_per_day: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    turns_per_day: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    minutes_per_day: Annotated[float, Meta(ge=0, le=1e9)] | None = None


class BudgetSection(Section, frozen=True):
    """What agents may use in one repository on one day of ``timezone`` (IANA; "" = the machine's own): all of them
    together, those that one user, one thread (conversation) or one scheduled job has asked."""

    timezone: str = ""
    repo: Limit = Limit()
    user: Limit = Limit()
    thread: Limit = Limit()
    job: Limit = Limit()

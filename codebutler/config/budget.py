"""What agents may use. Pure."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler.config.section import Section


class DailyLimit(Section, frozen=True):
    """A daily budget; None = unlimited. Minutes are an agent's working time."""

    usd_per_day: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    tokens_per_day: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    turns_per_day: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    minutes_per_day: Annotated[float, Meta(ge=0, le=1e9)] | None = None


class TotalLimit(DailyLimit, frozen=True):
    """A budget of all repositories together, also for a calendar month."""

    usd_per_month: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    tokens_per_month: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    turns_per_month: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    minutes_per_month: Annotated[float, Meta(ge=0, le=1e9)] | None = None


def limits_any(limit: DailyLimit) -> bool:
    """Whether it limits anything."""
    return any(getattr(limit, name) is not None for name in limit.__struct_fields__)


class BudgetSection(Section, frozen=True):
    """What agents may use in one repository on one day of ``timezone`` (IANA; "" = the machine's own): all
    together, for one user, one thread (conversation) or one scheduled job; and ``total``, in all repositories."""

    timezone: str = ""
    total: TotalLimit = TotalLimit()
    repo: DailyLimit = DailyLimit()
    user: DailyLimit = DailyLimit()
    thread: DailyLimit = DailyLimit()
    job: DailyLimit = DailyLimit()

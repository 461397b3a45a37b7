"""Pull requests that are followed, and what is new about them."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Select, delete
from sqlalchemy.sql.dml import Delete

from codebutler_worker.store import tables
from codebutler_worker.store.mapping import Repository, given, matching
from codebutler_worker.store.rows import PullNewsRow, PullRow


class PullsTable(Repository):
    """Pull requests, kept from when they are opened: what was told of one is never told again."""

    def put(self, row: PullRow) -> None:
        """Keep it, new or changed."""
        self._upsert(tables.pulls, row)

    def get(self, pull_id: str) -> PullRow | None:
        """The pull request, or None."""
        return self._one(matching(tables.pulls, "id"), PullRow, id=pull_id)

    def followed(self) -> list[PullRow]:
        """Those that are followed; the next to be looked at first."""
        return self._all(_followed(), PullRow, state="open")

    def add_news(self, row: PullNewsRow, oldest: str) -> None:
        """Keep what can be handed to an agent; what is older than ``oldest`` is let go."""
        self._run(_old_news(), oldest=oldest)
        self._upsert(tables.pull_news, row)

    def news(self, news_id: str) -> PullNewsRow | None:
        """It, or None if it is unknown, or too old."""
        return self._one(matching(tables.pull_news, "id"), PullNewsRow, id=news_id)


@cache
def _followed() -> Select[Any]:
    return matching(tables.pulls, "state").order_by(tables.pulls.c.next_at)


@cache
def _old_news() -> Delete:
    return delete(tables.pull_news).where(tables.pull_news.c.created_at < given("oldest"))

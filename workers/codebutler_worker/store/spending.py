"""What turns have used on a day, for budgets. Inside a transaction."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, func, select

from codebutler_worker.store import tables
from codebutler_worker.store.mapping import given
from codebutler_worker.store.rows import Account, Spent, Used


def spent_between(connection: Connection, first: str, until: str, without: str) -> list[Spent]:
    """Of every turn that began from ``first`` on and before ``until`` (ISO 8601, UTC), but ``without``, a turn's id."""
    values = {"given_first": first, "given_until": until, "given_without": without}
    rows = connection.execute(_spent(), values)
    return [
        Spent(
            row.agent,
            Account(row.user_id, row.conversation, row.job),
            Used(float(row.usd), int(row.tokens), int(row.turns), float(row.worked_s) / 60),
        )
        for row in rows
    ]


@cache
def _spent() -> Select[Any]:
    columns = tables.turns.c
    account = (columns.agent, columns.user_id, columns.conversation, columns.job)
    sums = (
        func.count().label("turns"),
        func.coalesce(func.sum(columns.cost_usd), 0.0).label("usd"),
        func.sum(columns.input_tokens + columns.output_tokens).label("tokens"),
        func.sum(columns.worked_s).label("worked_s"),
    )
    began = (columns.started_at >= given("first"), columns.started_at < given("until"))
    return select(*account, *sums).where(*began, columns.id != given("without")).group_by(*account)

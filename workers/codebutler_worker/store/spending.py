"""What was used on a day, for budgets: by turns, and by ourselves. Inside a transaction."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, func, select

from codebutler_worker.store import tables
from codebutler_worker.store.mapping import Repository, add, given
from codebutler_worker.store.rows import Account, ExpenseRow, Spent, Used

# Stands for every account's user, conversation or job but one's own: no ID and no name is written so.
OTHER = "*"


def spent_between(
    connection: Connection, first: str, until: str, account: Account, without: str
) -> list[Spent]:
    """Of every turn that began from ``first`` on and before ``until`` (ISO 8601, UTC), but ``without``, a turn's id;
    and of what we asked of models ourselves in that time.

    Summed up for ``account``, so that a day of many turns is a few rows: what is not its own is ``OTHER``'s.
    """
    values = {
        "given_first": first,
        "given_until": until,
        "given_conversation": account.conversation,
    }
    mine = {"given_user_id": account.user, "given_job": account.job, "given_without": without}
    rows = connection.execute(_spent(), values | mine)
    turns = [
        Spent(
            row.agent,
            Account(row.user_id, row.conversation, row.job),
            Used(float(row.usd), int(row.tokens), int(row.turns), float(row.worked_s) / 60),
        )
        for row in rows
    ]
    return turns + [
        Spent(
            row.purpose,
            Account("", row.conversation, row.purpose),
            Used(float(row.usd), int(row.tokens)),
        )
        for row in connection.execute(_expenses(), values)
    ]


class Expenses(Repository):
    """What we asked of models ourselves."""

    def add(self, row: ExpenseRow) -> None:
        """Write it down."""
        add(self._connection, tables.expenses, row)


@cache
def _expenses() -> Select[Any]:
    columns = tables.expenses.c
    account = (columns.purpose, _own(columns.conversation))
    sums = (
        func.coalesce(func.sum(columns.cost_usd), 0.0).label("usd"),
        func.sum(columns.input_tokens + columns.output_tokens).label("tokens"),
    )
    return (
        select(*account, *sums)
        .where(columns.at >= given("first"), columns.at < given("until"))
        .group_by(*account)
    )


@cache
def _spent() -> Select[Any]:
    columns = tables.turns.c
    account = (columns.agent, _own(columns.user_id), _own(columns.conversation), _own(columns.job, ""))
    sums = (
        func.count().label("turns"),
        func.coalesce(func.sum(columns.cost_usd), 0.0).label("usd"),
        func.sum(columns.input_tokens + columns.output_tokens).label("tokens"),
        func.sum(columns.worked_s).label("worked_s"),
    )
    began = (columns.started_at >= given("first"), columns.started_at < given("until"))
    return select(*account, *sums).where(*began, columns.id != given("without")).group_by(*account)


def _own(column: ColumnElement[str], *kept: str) -> ColumnElement[str]:
    """The value that was given, or one of those ``kept``; ``OTHER`` for any else."""
    name = str(column.name)
    return case((column.in_((given(name), *kept)), column), else_=OTHER).label(name)

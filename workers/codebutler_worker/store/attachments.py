"""Repository of the files that came with messages. Each method runs inside a transaction."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.dialects.sqlite import Insert, insert

from codebutler_worker.store import tables
from codebutler_worker.store.mapping import Repository, change, every, given, values
from codebutler_worker.store.rows import AttachmentRow


class Attachments(Repository):
    """A message's files, in the order they were attached."""

    def add(self, row: AttachmentRow) -> None:
        """Keep an attachment; one that is known stays as it is."""
        self._connection.execute(_add(), values(row))

    def of_turn(self, turn_id: str) -> list[AttachmentRow]:
        """What came with the messages a turn answers."""
        found = every(self._connection, _of_turn(), AttachmentRow, turn_id=turn_id)
        # SQLite has no booleans.
        return [replace(row, is_voice=bool(row.is_voice)) for row in found]

    def put(self, row: AttachmentRow) -> None:
        """Replace what is known of an attachment."""
        where = {"message_id": row.message_id, "file_id": row.file_id}
        change(self._connection, tables.attachments, values(row), **where)


@cache
def _add() -> Insert:
    return insert(tables.attachments).on_conflict_do_nothing()


@cache
def _of_turn() -> Select[Any]:
    files, messages = tables.attachments, tables.messages
    return (
        select(files)
        .join(messages, messages.c.id == files.c.message_id)
        .where(messages.c.turn_id == given("turn_id"))
        .order_by(messages.c.order, messages.c.id, files.c.position)
    )

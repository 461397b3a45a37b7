"""Repository of the files that came with messages. Each method runs inside a transaction."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, select, update
from sqlalchemy.dialects.sqlite import insert

from codebutler_worker.store import tables
from codebutler_worker.store.mapping import every, values
from codebutler_worker.store.rows import AttachmentRow


class Attachments:
    """A message's files, in the order they were attached."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, row: AttachmentRow) -> None:
        """Keep an attachment; one that is known stays as it is."""
        self._connection.execute(insert(tables.attachments).values(values(row)).on_conflict_do_nothing())

    def of_turn(self, turn_id: str) -> list[AttachmentRow]:
        """What came with the messages a turn answers."""
        files, messages = tables.attachments, tables.messages
        query = (
            select(files)
            .join(messages, messages.c.id == files.c.message_id)
            .where(messages.c.turn_id == turn_id)
            .order_by(messages.c.platform_msg_id, messages.c.id, files.c.position)
        )
        # SQLite has no booleans.
        return [
            replace(row, is_voice=bool(row.is_voice)) for row in every(self._connection, query, AttachmentRow)
        ]

    def put(self, row: AttachmentRow) -> None:
        """Replace what is known of an attachment."""
        columns = tables.attachments.c
        statement = update(tables.attachments).where(
            columns.message_id == row.message_id, columns.file_id == row.file_id
        )
        self._connection.execute(statement.values(values(row)))

"""The unit of work: what one transaction may touch."""

from __future__ import annotations

from sqlalchemy import Connection

from codebutler.clock import Clock
from codebutler_worker.store.conversations import Inbox, Messages, Turns
from codebutler_worker.store.outbox import Approvals, Outbox
from codebutler_worker.store.sessions import Sessions


class UnitOfWork:
    """The repositories of one open transaction. Valid only within the call that received it."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self.inbox = Inbox(connection)
        self.messages = Messages(connection)
        self.turns = Turns(connection)
        self.sessions = Sessions(connection)
        self.outbox = Outbox(connection, clock)
        self.approvals = Approvals(connection, clock)

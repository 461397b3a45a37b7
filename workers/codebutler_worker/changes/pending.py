"""Pending checks, stored as rows: each starts when nobody is working in its tree.

A run that begins there interrupts them, and they start over when the tree is idle. So a busy checkout has only its
last state checked, once: a run that changes files takes over the pending checks of earlier runs.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from codebutler.config.programs import parallel_programs
from codebutler.config.schema import Config
from codebutler.domain.message import Message
from codebutler.domain.model import Operation, Post
from codebutler.domain.refs import PersonRef
from codebutler_worker.changes.card import LATER, WAITING, with_verdict
from codebutler_worker.runtime.deferred import LINE, say_line, sent_as
from codebutler_worker.runtime.turns import CHECKS, LIVE, own_tree
from codebutler_worker.store.rows import DeferredRow, TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork

_KEY = "changes-"
BY_THEMSELVES, ALL = "always", "all"
"""Which checks a row is for: the automatic ones, or also those a person may request."""


def evidence_id(turn_id: str) -> str:
    """The key of a run's card and of the command that runs its checks."""
    return f"{_KEY}{turn_id}"


def card_id(turn_id: str) -> str:
    """The operation that posts a run's card."""
    return sent_as(evidence_id(turn_id), LINE)


def turn_of(evidence: str) -> str:
    """The run that a card or its checks belong to; "" for anything else."""
    return evidence.removeprefix(_KEY) if evidence.startswith(_KEY) else ""


def posted_card(uow: UnitOfWork, turn_id: str) -> Message | None:
    """The run's card as posted."""
    return posted_as(uow, card_id(turn_id))


def posted_as(uow: UnitOfWork, op_id: str) -> Message | None:
    """What this operation posted."""
    row = uow.outbox.get(op_id)
    operation = msgspec.json.decode(row.payload, type=Operation) if row else None
    return operation.message if isinstance(operation, Post) else None


def tell(uow: UnitOfWork, command: DeferredRow, verdict: str, *, offer: bool = True) -> None:
    """Show the state of its checks on the card; ``offer``: show a button to run them (again)."""
    turn_id = turn_of(command.id)
    if (posted := posted_card(uow, turn_id)) is not None:
        say_line(uow, command, with_verdict(posted, verdict, turn_id, offer=offer), value="notice")


def add_checks(uow: UnitOfWork, turn: TurnRow, user: PersonRef, which: str = BY_THEMSELVES) -> None:
    """Have a run's checks run as soon as its tree is idle."""
    uow.deferred.add(
        DeferredRow(
            id=evidence_id(turn.id),
            name=CHECKS,
            argument=which,
            conversation=turn.conversation,
            thread=turn.thread or None,
            user_id=user,
            created_at=uow.stamp,
        )
    )


def due_checks(uow: UnitOfWork, config: Config, working: Collection[str]) -> list[DeferredRow]:
    """Those whose tree is idle; ``working``: conversations in which an agent still runs, whatever the store says."""
    found = _pending(uow)
    if not found:
        return []
    busy = {*working, *_busy(uow, config)}
    # If it was started and is due again, we interrupted it: only a worker that died leaves an attempt that counts.
    return [replace(row, attempts=0) for row in found if not _is_among(config, row.conversation, busy)]


def is_at_rest(uow: UnitOfWork, config: Config, conversation: str) -> bool:
    """Whether nobody is working, or about to work, in the conversation's tree."""
    return not _is_among(config, conversation, _busy(uow, config))


def put_off_checks(uow: UnitOfWork, config: Config, conversation: str) -> tuple[str, ...]:
    """A run begins in a conversation: the checks of its tree wait until it has ended; returns which."""
    put_off = [row for row in _pending(uow) if _is_among(config, row.conversation, {conversation})]
    for row in put_off:
        tell(uow, row, WAITING, offer=False)
        uow.deferred.go_on(row.id, row.argument)
    return tuple(row.id for row in put_off)


def take_over_checks(uow: UnitOfWork, config: Config, turn: TurnRow) -> None:
    """A run has changed files: checks still pending from earlier runs in its tree are about a state that is gone."""
    for row in _pending(uow):
        if row.argument == BY_THEMSELVES and _is_among(config, row.conversation, {turn.conversation}):
            tell(uow, row, LATER)
            uow.deferred.delete(id=row.id)


def withdraw_checks(uow: UnitOfWork, conversation: str | None, verdict: str) -> tuple[str, ...]:
    """Cancel the checks of a conversation (None = of all), and say why on their cards; returns which."""
    withdrawn = [row for row in _pending(uow) if conversation in (None, row.conversation)]
    for row in withdrawn:
        tell(uow, row, verdict)
        uow.deferred.delete(id=row.id)
    return tuple(row.id for row in withdrawn)


def _pending(uow: UnitOfWork) -> list[DeferredRow]:
    return [row for row in uow.deferred.find() if turn_of(row.id)]


def _busy(uow: UnitOfWork, config: Config) -> set[str]:
    apart = parallel_programs(config)
    return {turn.conversation for turn in uow.turns.find(state=("queued", *LIVE)) if turn.agent not in apart}


def _is_among(config: Config, conversation: str, busy: Collection[str]) -> bool:
    """Whether any of them works in the conversation's tree."""
    return own_tree(config, conversation) in {own_tree(config, each) for each in busy}

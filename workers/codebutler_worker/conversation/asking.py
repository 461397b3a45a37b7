"""Questions of a running turn's agent to people.

The row and its card are committed first; the agent gets the answer only after the decision is committed. If
the store cannot take the question, the answer is no.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping

from msgspec import Struct

from codebutler.domain.errors import StoreError
from codebutler.domain.refs import NO_PERSON, PersonRef
from codebutler_worker.agents.backend import AgentBackend, Answer, Approval, Question, Withdrawn
from codebutler_worker.conversation.approvals import (
    NO_LONGER_ASKED,
    ask,
    is_granted,
    settle,
)
from codebutler_worker.present.calls import is_same
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import ApprovalAnswer, audit_of
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork, place_of

UNSAVED = "Nobody could be asked: the question could not be stored. Continue without an answer."
EXPIRED = "⌛ Nobody decided within {minutes:g} minutes: refused."
EXPIRED_REASON = "Nobody decided within {minutes:g} minutes."
UNANSWERED = "(Nobody answered this within {minutes:g} minutes.)"
TOO_LATE = "⚠️ The agent was no longer waiting for that decision: it has no effect."
NOT_THE_SAME = "Refused: this is not what was approved."


class Pending(Struct, frozen=True):
    """A question that the agent waits for."""

    backend: AgentBackend
    asked: Approval | Question


class Asking:
    """The open questions of one running turn, each with its own time limit. ``changed`` is called with what a
    person has to give next, an "approval" or an "answer" ("" for nothing), and with the newest card."""

    def __init__(self, runtime: Runtime, turn: TurnRow, changed: Callable[[str, str | None], None]) -> None:
        self._runtime = runtime
        self._turn = turn
        self._changed = changed
        self._card_op_id: str | None = None
        self._pending: dict[str, Pending] = {}
        self._limits: dict[str, asyncio.Task[None]] = {}
        self._gathered: list[Question] = []

    def _tell_changed(self) -> None:
        asked = [pending.asked for pending in self._pending.values()]
        approval = any(isinstance(each, Approval) for each in asked)
        self._changed("approval" if approval else "answer" if asked else "", self._card_op_id)

    async def ask(self, backend: AgentBackend, asked: Approval | Question, session_id: str) -> None:
        """Ask in the thread, unless the session's grants allow it; the questions of one call together."""
        together = self._together(asked)
        named = {uuid.uuid4().hex: each for each in together}
        self._pending.update({row_id: Pending(backend, each) for row_id, each in named.items()})
        if not named:
            return
        try:
            granted = await self._runtime.commit(lambda uow: self._ask_unless_granted(uow, named, session_id))
        except StoreError as error:
            self._runtime.log("ERR", f"could not store a question: {error}")
            await self._refuse(list(named), UNSAVED)
            return
        if granted:
            self._audit(asked, self._turn.user_id, "allowed for the session")
            await self._answer(next(iter(named)), Answer(allow=True))
            return
        waiting = [row_id for row_id in named if row_id in self._pending]
        if waiting and self._runtime.settings.config.approvals.expiry_minutes:
            limit = asyncio.create_task(self._expire(tuple(named)), name=f"limit of {waiting[0]}")
            self._limits.update(dict.fromkeys(waiting, limit))
        self._tell_changed()

    async def withdrawn(self, event: Withdrawn) -> None:
        """The agent no longer waits for the answer: show that on its card."""
        gone = [key for key, pending in self._pending.items() if _belongs(pending.asked, event)]
        for approval_id in gone:
            del self._pending[approval_id]
            self._unlimit(approval_id)
        if not gone:
            return
        try:
            await self._runtime.commit(lambda uow: _take_back(uow, gone))
        except StoreError as error:
            # The card stays open until the turn ends; a click on it finds no waiting question, and says so.
            self._runtime.log("ERR", f"could not close a card: {error}")
        self._tell_changed()

    async def decided(self, answer: ApprovalAnswer) -> None:
        """Give the agent the committed decision; a call other than the approved one is refused."""
        pending = self._pending.get(answer.approval_id)
        if pending is None:
            return
        self._unlimit(answer.approval_id)
        try:
            row = await self._runtime.commit(lambda uow: uow.approvals.get(answer.approval_id))
        except StoreError as error:
            self._runtime.log("ERR", f"could not read a decision: {error}")
            row = None
        if row is None or not is_same(row, pending.asked, self._runtime.settings.path):
            await self._refuse([answer.approval_id, *self._siblings(pending.asked)], NOT_THE_SAME)
            return
        self._audit(pending.asked, row.decided_by or NO_PERSON, row.state)
        await self._answer(answer.approval_id, Answer(answer.allow, answer.text))

    async def close(self) -> None:
        """The turn is over: stop asking."""
        limits = set(self._limits.values())
        self._limits.clear()
        self._pending.clear()
        for limit in limits:
            limit.cancel()
        await asyncio.gather(*limits, return_exceptions=True)

    def _together(self, asked: Approval | Question) -> list[Approval | Question]:
        """What to post now: nothing while more questions of the same call are still to come."""
        if isinstance(asked, Approval) or asked.of == 1:
            return [asked]
        self._gathered.append(asked)
        if len(self._gathered) < asked.of:
            return []
        together, self._gathered = self._gathered, []
        return [*together]

    def _ask_unless_granted(
        self, uow: UnitOfWork, named: Mapping[str, Approval | Question], session_id: str
    ) -> bool:
        first = next(iter(named.values()))
        if isinstance(first, Approval) and is_granted(
            uow, self._turn, session_id, first, self._runtime.settings
        ):
            return True
        self._card_op_id = ask(uow, self._turn, named, self._runtime.settings)
        return False

    def _siblings(self, asked: Approval | Question) -> list[str]:
        """The other questions of the same call."""
        call = _call(asked)
        return [
            key
            for key, pending in self._pending.items()
            if pending.asked is not asked and _call(pending.asked) == call
        ]

    def _unlimit(self, approval_id: str) -> None:
        """It has no time limit any more; a shared one continues for the others."""
        limit = self._limits.pop(approval_id, None)
        if limit is not None and limit not in self._limits.values():
            limit.cancel()

    async def _refuse(self, approval_ids: list[str], why: str) -> None:
        """A call is refused as a whole: the agent waits for none of its other questions."""
        first, *rest = approval_ids
        for approval_id in rest:
            self._pending.pop(approval_id, None)
            self._unlimit(approval_id)
        await self._answer(first, Answer(allow=False, text=why))

    async def _answer(self, approval_id: str, answer: Answer) -> None:
        pending = self._pending.pop(approval_id, None)
        if pending is None:
            return
        self._tell_changed()
        if not await pending.backend.answer(self._turn.id, pending.asked.id, answer):
            self._runtime.log("WRN", "the agent no longer waited for what was decided")
            await self._runtime.commit(lambda uow: uow.post(place_of(self._turn), TOO_LATE, value="notice"))

    async def _expire(self, approval_ids: tuple[str, ...]) -> None:
        minutes = self._runtime.settings.config.approvals.expiry_minutes
        await self._runtime.clock.sleep(minutes * 60)
        # Close the card before the agent hears no: the store first, however long it takes.
        expired = await self._runtime.commit(
            lambda uow: _expired(uow, approval_ids, EXPIRED.format(minutes=minutes)), surely="an expiry"
        )
        if len(expired) == len(approval_ids):
            await self._refuse(expired, EXPIRED_REASON.format(minutes=minutes))
            return
        # Keep the answers to the questions that were answered.
        for approval_id in expired:
            await self._answer(approval_id, Answer(allow=True, text=UNANSWERED.format(minutes=minutes)))

    def _audit(self, asked: Approval | Question, user: PersonRef, decision: str) -> None:
        what = f"{asked.tool}: {asked.summary}" if isinstance(asked, Approval) else asked.text
        self._runtime.send(audit_of(self._turn, what, decision, user=user))


def _expired(uow: UnitOfWork, approval_ids: tuple[str, ...], verdict: str) -> list[str]:
    """Mark the questions that nobody has decided; the thread is notified once."""
    rows = [row for row in map(uow.approvals.get, approval_ids) if row is not None]
    expired = [row for row in rows if settle(uow, row, "expired", reason=verdict)]
    turn = uow.turns.get(expired[0].turn_id) if expired else None
    if turn is not None:
        uow.post(place_of(turn), verdict, mention=turn.user_id)
    return [row.id for row in expired]


def _take_back(uow: UnitOfWork, approval_ids: list[str]) -> None:
    for approval_id in approval_ids:
        if row := uow.approvals.get(approval_id):
            settle(uow, row, "expired", reason=NO_LONGER_ASKED)


def _belongs(asked: Approval | Question, event: Withdrawn) -> bool:
    """One call may ask several questions: ``<call>#<number>``."""
    return event.id in (asked.id, _call(asked))


def _call(asked: Approval | Question) -> str:
    return asked.id.partition("#")[0]

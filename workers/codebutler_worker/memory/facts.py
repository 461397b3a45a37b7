"""Facts that an agent keeps by name: for the repository, or for the person it works for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from codebutler.config.memory.lines import clean, holds_secret, suspicion
from codebutler.config.secrets import secrets_in
from codebutler.text.redact import Redactor
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft
from codebutler_worker.present.lines import one_line
from codebutler_worker.store.rows import REPO_SCOPE, FactRow, TurnRow
from codebutler_worker.tools.outcome import ToolError

MAX_FACTS = 100
"""In each scope."""
MAX_KEY_CHARS = 64


@dataclass(frozen=True, slots=True)
class TurnNotes:
    """The Notes of one turn: whoever asked for it is the person."""

    desk: Desk
    turn: TurnRow

    async def remember(self, key: str, value: str, *, for_person: bool) -> str:
        """Keep it, in place of what had the name before; returns what is kept. Raises ToolError."""
        name, fact = fact_of(key, value)
        if holds_secret(f"{name}: {fact}", Redactor(secrets_in(self.desk.settings))):
            raise ToolError("this holds a secret, which is never kept: leave it out")
        row = FactRow(
            scope=self._scope(for_person=for_person),
            key=name,
            value=fact,
            channel_id=self.turn.channel_id,
            thread_ts=self.turn.thread_ts,
            updated_at="",
        )
        if not await self.desk.commit(partial(_put, row=row)):
            raise ToolError(f"{MAX_FACTS} facts are kept already: forget one first")
        self.desk.report.log("MEM", f'{self.turn.agent}: remember "{one_line(f"{name}: {fact}", 200)}"')
        return f"{name}: {fact}"

    async def forget(self, key: str, *, for_person: bool) -> bool:
        """Drop it; False if there was none."""
        name = clean(key)[:MAX_KEY_CHARS]
        gone = await self.desk.commit(partial(_drop, scope=self._scope(for_person=for_person), key=name))
        if gone:
            self.desk.report.log("MEM", f'{self.turn.agent}: forget "{one_line(name, 200)}"')
        return gone

    def _scope(self, *, for_person: bool) -> str:
        return self.turn.user_id if for_person and self.turn.user_id else REPO_SCOPE


def fact_of(key: str, value: str) -> tuple[str, str]:
    """(name, fact) as they may be kept, one plain line each. Pure. Raises ToolError."""
    name, fact = clean(key), clean(value)
    if not name or not fact or len(name) > MAX_KEY_CHARS:
        raise ToolError(f"give a name of 1 to {MAX_KEY_CHARS} characters, and a fact of one line")
    if words := suspicion(name) or suspicion(fact):
        raise ToolError(
            f"this reads like an order to agents, not like a fact ({words}): people write such things into "
            ".codebutler/memory.md themselves"
        )
    return name, fact


def _put(draft: Draft, row: FactRow) -> bool:
    facts = draft.uow.facts
    if facts.get(row.scope, row.key) is None and len(facts.of(row.scope)) >= MAX_FACTS:
        return False
    facts.put(
        FactRow(
            scope=row.scope,
            key=row.key,
            value=row.value,
            channel_id=row.channel_id,
            thread_ts=row.thread_ts,
            updated_at=draft.stamp,
        )
    )
    return True


def _drop(draft: Draft, scope: str, key: str) -> bool:
    known = draft.uow.facts.get(scope, key) is not None
    draft.uow.facts.forget(scope, key)
    return known

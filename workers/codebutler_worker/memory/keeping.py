"""The life of a change to the memory: proposed or wanted, then written or dropped.

A change is a row before it is written to the file, and writing it twice changes nothing: after a crash in between, the
deferred command that carries it completes it at the next start. Facts that agents store by name are only rows.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.memory import (
    FactChange,
    MemoryFile,
    apply_changes,
    clean_fact,
    facts_of,
    holds_secret,
    suspicious_words,
)
from codebutler.config.permission import admitted, may
from codebutler.config.schema import Config
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import said
from codebutler.domain.model import ButtonClicked
from codebutler.domain.refs import NO_PERSON, NOWHERE, ConversationRef, MessageRef, PersonRef
from codebutler.text.wording import one_line
from codebutler_worker.present.cards import (
    DROP_MEMORY_ACTION,
    KEEP_ACTION,
    card,
    decided_card,
    logged,
    made_text,
)
from codebutler_worker.present.lines import person
from codebutler_worker.runtime.deferred import CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import Todo, using
from codebutler_worker.store.rows import (
    REPO_SCOPE,
    ChangeState,
    DeferredRow,
    FactRow,
    MemoryChangeRow,
    MemoryLineRow,
    TurnRow,
)
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork
from codebutler_worker.tools.tool import ToolError

COMMAND = "memory"
LEARNED = "learned"
"""Argument of a deferred command that no person asked for, so nobody gets an answer."""
ASKED = "asked"
DECIDED_ON = "kept:"
"""In the argument of a deferred command, it precedes the ref of the card on which a person decided; their name comes
last."""
FULL = "the memory is full, or has changed since. `!memory forget N` makes room."
DECISIONS = frozenset({KEEP_ACTION, DROP_MEMORY_ACTION})
MAX_FACTS = 100
"""The most facts in one scope."""
MAX_KEY_CHARS = 64


def encode_changes(changes: Sequence[FactChange]) -> str:
    """Changes as stored in a row."""
    return msgspec.json.encode([(change.old, change.new) for change in changes]).decode()


def changes_of(row: MemoryChangeRow) -> tuple[FactChange, ...]:
    """The changes stored in a row."""
    return tuple(
        FactChange(old, new) for old, new in msgspec.json.decode(row.changes, type=list[tuple[str, str]])
    )


def record_learned(
    uow: UnitOfWork, row: MemoryChangeRow, changes: Sequence[FactChange], *, ask: bool
) -> list[DeferredRow]:
    """Store what a model has learned from ``row``'s conversation; returns the commands to carry out.

    With ``ask``, a card in the thread asks first. A fact that reads like an instruction always gets a card, and its own
    one.
    """
    suspicious = [change for change in changes if suspicious_words(change.new)]
    harmless = [change for change in changes if change not in suspicious]
    place = ThreadPlace(row.conversation, row.thread or None)
    for batch in (harmless if ask else [], suspicious):
        if batch:
            change_id = uuid.uuid4().hex
            op_id = uow.post(place, card(change_id, batch))
            uow.memories.add(
                replace(
                    row, id=change_id, changes=encode_changes(batch), state="proposed", message_op_id=op_id
                )
            )
    if ask or not harmless:
        return []
    uow.memories.add(replace(row, changes=encode_changes(harmless), state="wanted"))
    _record_origins(uow, row, harmless)
    return [_defer(uow, place, row, LEARNED)]


def request_change(
    uow: UnitOfWork,
    place: ThreadPlace,
    channel_id: ConversationRef,
    user: PersonRef,
    changes: Sequence[FactChange],
) -> DeferredRow:
    """A person wants these changes; returns the command that carries them out and reports back."""
    row = MemoryChangeRow(
        id=uuid.uuid4().hex,
        conversation=place.conversation,
        channel_id=channel_id,
        thread=place.thread or NOWHERE,
        changes=encode_changes(changes),
        created_at=uow.stamp,
        state="wanted",
        user_id=user,
    )
    uow.memories.add(row)
    _record_origins(uow, row, changes)
    return _defer(uow, place, row, ASKED)


def decide(uow: UnitOfWork, config: Config, event: ButtonClicked) -> Todo:
    """Keep or Drop was pressed. The first person who may decide does."""
    row = uow.memories.get(event.value)
    if row is None or row.channel_id != event.channel:
        return Todo().logged("DBG", "nothing to do for a click on a card that is not known here")
    place = ThreadPlace(row.conversation, row.thread or None)
    decision = may(admitted(event.user), "remember", using(config, event.channel, config.agent.default))
    if not decision.allowed:
        uow.post(place, decision.message)
        return Todo().logged("WRN", f"{event.user} may not decide about the memory")
    if row.state != "proposed":
        return Todo()  # the card already shows the outcome
    if event.action_id == KEEP_ACTION:
        uow.memories.update(row.id, state="wanted")
        _record_origins(uow, row, changes_of(row))
        # The card says so when it is written.
        command = _defer(uow, place, row, f"{DECIDED_ON}{event.message}", event.user, event.user_name)
        return Todo(deferred=(command,)).logged("MEM", f"{event.user} kept what was learned")
    uow.memories.update(row.id, state="dropped")
    verdict = f"🗑️ Dropped by {person(event.user, event.user_name)}."
    uow.edit_ref(place, event.message, decided_card(changes_of(row), verdict))
    return Todo().logged("MEM", f"{event.user} dropped what was learned")


async def answer(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """Write a wanted change to the file, then mark it as done and tell the person who wanted it. Raises CodeButlerError
    if the file cannot be written."""
    origin, _, rest = command.argument.partition(" ")
    change_id, _, name = rest.partition(" ")
    row = await runtime.commit(lambda uow: uow.memories.get(change_id))
    if row is None or row.state not in ("wanted", "made"):
        return CommandReply(())
    changes = changes_of(row)
    if row.state == "wanted":
        try:
            changes = await _write(runtime, changes)
        except CodeButlerError:
            # The card still has its buttons; other requests can be made again.
            state: ChangeState = "proposed" if origin.startswith(DECIDED_ON) else "dropped"
            await runtime.commit(lambda uow: uow.memories.update(change_id, state=state))
            raise
        card = MessageRef(origin.removeprefix(DECIDED_ON) if origin.startswith(DECIDED_ON) else "")
        by = person(command.user_id, name)
        await runtime.commit(partial(_mark_made, row=row, changes=changes, card=card, by=by))
        if origin == ASKED:
            for change in changes:
                runtime.log("MEM", logged(row.user_id, change))
    return CommandReply((said(made_text(changes)),) if origin == ASKED else ())


async def _write(runtime: Runtime, changes: Sequence[FactChange]) -> tuple[FactChange, ...]:
    """The changes that hold afterwards, including those that an earlier run of this worker has written."""
    file = MemoryFile(Path(runtime.settings.path))
    # People take back lines exactly as they are in the file; a model's were cleaned when they were learned.
    applied = await asyncio.to_thread(file.change, partial(apply_changes, changes, verbatim=True))
    for change, why in applied.refused:
        runtime.log("DBG", f"not remembered ({why}): {change.new or change.old}")
    facts = set(facts_of(applied.text))
    return tuple(change for change in changes if _is_in_effect(change, facts))


def _mark_made(
    uow: UnitOfWork, row: MemoryChangeRow, changes: Sequence[FactChange], card: MessageRef, by: str
) -> None:
    uow.memories.update(row.id, state="made", changes=encode_changes(changes))
    if card:
        is_complete = len(changes) == len(changes_of(row))
        verdict = f"✅ Kept by {by}." if is_complete else f"⚠️ Kept by {by}, as far as it fits: {FULL}"
        card_place = ThreadPlace(row.conversation, row.thread or None)
        uow.edit_ref(card_place, card, decided_card(changes, verdict))
    removed_lines = {change.old for change in changes if change.old} - {change.new for change in changes}
    uow.memory_lines.delete(line=tuple(removed_lines))


def _record_origins(uow: UnitOfWork, row: MemoryChangeRow, changes: Sequence[FactChange]) -> None:
    """Record where the new facts come from before they are written: people who see one in the file may ask."""
    known = {row.line for row in uow.memory_lines.find()}
    for change in changes:
        if change.new and change.new not in known:
            line = MemoryLineRow(
                line=change.new, channel_id=row.channel_id, thread=row.thread, added_at=uow.stamp
            )
            uow.memory_lines.add(line, known="replace")


def _is_in_effect(change: FactChange, facts: set[str]) -> bool:
    return (
        bool(change.old or change.new) and change.old not in facts and (not change.new or change.new in facts)
    )


def _defer(
    uow: UnitOfWork,
    place: ThreadPlace,
    row: MemoryChangeRow,
    origin: str,
    user: PersonRef = NO_PERSON,
    name: str = "",
) -> DeferredRow:
    command = DeferredRow(
        id=uuid.uuid4().hex,
        name=COMMAND,
        argument=f"{origin} {row.id} {name}".strip(),
        conversation=place.conversation,
        thread=place.thread,
        user_id=user or row.user_id,
        only_for=place.only_for,
        created_at=uow.stamp,
    )
    uow.deferred.add(command)
    return command


class TurnNotes(Struct, frozen=True):
    """Facts that an agent stores by name, for the repository or for the person it works for."""

    runtime: Runtime
    turn: TurnRow

    async def remember(self, key: str, value: str, *, for_person: bool) -> str:
        """Store a fact, replacing one with the same name; returns what is stored. Raises ToolError."""
        name, fact = fact_of(key, value)
        if holds_secret(f"{name}: {fact}", self.runtime.redactor):
            raise ToolError("this holds a secret, which is never kept: leave it out")
        row = FactRow(
            scope=self._scope(for_person=for_person),
            key=name,
            value=fact,
            channel_id=self.turn.channel_id,
            thread=self.turn.thread,
            updated_at="",
        )
        if not await self.runtime.commit(partial(_store_fact, row=row)):
            raise ToolError(f"{MAX_FACTS} facts are kept already: forget one first")
        self.runtime.log("MEM", f'{self.turn.agent}: remember "{one_line(f"{name}: {fact}", 200)}"')
        return f"{name}: {fact}"

    async def forget(self, key: str, *, for_person: bool) -> bool:
        """Delete a fact; False if there was none."""
        name = clean_fact(key)[:MAX_KEY_CHARS]
        scope = self._scope(for_person=for_person)
        existed = await self.runtime.commit(lambda uow: uow.facts.delete(scope=scope, key=name)) > 0
        if existed:
            self.runtime.log("MEM", f'{self.turn.agent}: forget "{one_line(name, 200)}"')
        return existed

    def _scope(self, *, for_person: bool) -> str:
        return self.turn.user_id if for_person and self.turn.user_id else REPO_SCOPE


def fact_of(key: str, value: str) -> tuple[str, str]:
    """(name, fact) cleaned for storage, one plain line each. Pure. Raises ToolError."""
    name, fact = clean_fact(key), clean_fact(value)
    if not name or not fact or len(name) > MAX_KEY_CHARS:
        raise ToolError(f"give a name of 1 to {MAX_KEY_CHARS} characters, and a fact of one line")
    if words := suspicious_words(name) or suspicious_words(fact):
        raise ToolError(
            f"this reads like an instruction to agents, not like a fact ({words}): people write such things into "
            ".codebutler/memory.md themselves"
        )
    return name, fact


def _store_fact(uow: UnitOfWork, row: FactRow) -> bool:
    facts = uow.facts
    if facts.get(row.scope, key=row.key) is None and len(facts.find(scope=row.scope)) >= MAX_FACTS:
        return False
    facts.add(replace(row, updated_at=uow.stamp), known="replace")
    return True

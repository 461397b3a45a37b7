"""Undoes what a run changed. Undoing is a turn too: it is queued, recorded and recovered like any other, and can
itself be undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from pathlib import Path

from msgspec.structs import replace

from codebutler.config.programs import UNDO
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import said
from codebutler.domain.refs import NOWHERE, MessageRef, PersonRef
from codebutler.text.markup import person, plain
from codebutler.text.wording import count
from codebutler_worker.agents.backend import AgentBackend, AgentEvent, Finished, ToolUse, TurnRequest
from codebutler_worker.present.notices import ALREADY_UNDONE, UNDO_BUSY, UNDOING, undone_text
from codebutler_worker.runtime.turns import LIVE, queue_after, words_of
from codebutler_worker.store.rows import TurnRow, message_id
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork
from codebutler_worker.tree.tree import Tree

LOOKED_AT = 50
_UNDO_KEY = "undo-"
WORDS_CHARS = 60
REDO = "redo: "
UNKNOWN = "I no longer know what to undo: say `!undo` again."


def undo_key(turn_id: str) -> MessageRef:
    """The key of the message that asks to undo a turn: there is at most one."""
    return MessageRef(f"{_UNDO_KEY}{turn_id}")


def changed_by(newest: Iterable[TurnRow]) -> TurnRow | None:
    """The first of these turns that changed (or, if its worker died, may have changed) the working tree."""
    return next((turn for turn in newest if _changed(turn)), None)


def _changed(turn: TurnRow) -> bool:
    return turn.tree_before is not None and turn.tree_after != turn.tree_before


def to_put_back(uow: UnitOfWork, turn: TurnRow) -> tuple[str, str | None] | None:
    """For an undoing turn: the commits between which the change lies."""
    for message in uow.messages.find(turn_id=turn.id):
        undone = uow.turns.get(message.id.partition(f":{_UNDO_KEY}")[2])
        if undone is not None and undone.tree_before is not None:
            return undone.tree_before, undone.tree_after
    return None


def undo(uow: UnitOfWork, turn: TurnRow, user: PersonRef, place: ThreadPlace, card: MessageRef) -> None:
    """Queue the undo of ``turn``, once, and say so on its card at ``card`` in ``place``. Nothing else may be running:
    it could be writing."""
    key = undo_key(turn.id)
    if turn.tree_before is None or uow.messages.get(message_id(turn.channel_id, key)) is not None:
        uow.post(place, ALREADY_UNDONE)
        return
    if uow.turns.find(state=LIVE):
        uow.post(place, UNDO_BUSY)
        return
    verb, words = reversal(uow, turn)
    text = f"{verb.lower()}: {words}"
    queue_after(uow, replace(turn, thread=place.thread or NOWHERE), UNDO, key, text, user)
    uow.edit_ref(place, card, said(UNDOING.format(verb=verb, words=plain(words), who=person(user))))


def reversal(uow: UnitOfWork, turn: TurnRow) -> tuple[str, str]:
    """What reversing ``turn`` is called (Undo, or Redo if it is itself an undo), and the words of the task that it is
    about."""
    words = words_of(uow, turn, WORDS_CHARS) or "…"
    if turn.agent != UNDO:
        return "Undo", words
    done, _, words = words.partition(": ")
    return "Redo" if done == "undo" else "Undo", words


class UndoBackend(AgentBackend):
    """Restores what changed between the two commits of ``TurnRequest.put_back``. It has no sessions."""

    name = "undo"

    def __init__(self, tree: Callable[[Path], Awaitable[Tree]]) -> None:
        self._tree = tree
        self._under_way: set[asyncio.Task[Finished]] = set()

    async def start(self, turn: TurnRequest) -> AsyncGenerator[AgentEvent]:
        """Run the turn. A partial undo would be worse than a complete one, so once started it is not stopped."""
        yield ToolUse(turn.turn_id, "Undo", " ".join(turn.prompt.split())[:80])
        task = asyncio.create_task(self._undo(turn), name=f"undo of {turn.turn_id}")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        yield await asyncio.shield(task)

    async def close(self) -> None:
        """Wait for what has started."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _undo(self, turn: TurnRequest) -> Finished:
        if turn.put_back is None:
            return Finished(ok=False, text=UNKNOWN, reason="failed")
        try:
            found = await (await self._tree(turn.workdir)).put_back(*turn.put_back, "apply")
        except CodeButlerError as error:
            return Finished(ok=False, text=f"Nothing was undone: {error}.", reason="failed")
        if not found.undone:
            text = f"Nothing was undone: {count(len(found.left), 'file')} changed since."
            return Finished(ok=False, text=text, reason="failed")
        text = undone_text(found, again=turn.prompt.startswith(REDO))
        return Finished(ok=True, text=text, reason="done")

"""The working tree before and after each turn, so that what a turn changed can be seen and undone.

Undoing is a turn too: it is queued, recorded and recovered like any other, and can itself be undone.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from codebutler.domain.errors import CodeButlerError, StoreError
from codebutler.domain.message import said
from codebutler.text.markup import plain
from codebutler_worker.agents.backend import AgentEvent, Answer, Finished, ToolUse, TurnRequest
from codebutler_worker.present.lines import count
from codebutler_worker.present.notices import ALREADY_UNDONE, UNDO_BUSY, UNDOING, undone_text
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import IMAGE, LIVE, UNDO, words_of
from codebutler_worker.store.rows import MessageRow, TurnRow, message_id
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork
from codebutler_worker.tree.tree import AFTER, BEFORE, Snapshot, Tree

LOOKED_AT = 50
_UNDO_KEY = "undo-"
WORDS_CHARS = 60
UNKNOWN = "I no longer know what to undo: say `!undo` again."


def undo_key(turn_id: str) -> str:
    """What names the message that asks to undo a turn: there is at most one."""
    return f"{_UNDO_KEY}{turn_id}"


def changed_by(newest: Callable[[int], list[TurnRow]]) -> TurnRow | None:
    """The newest turn that changed (or, if its worker died, may have changed) the working tree."""
    return next((turn for turn in newest(LOOKED_AT) if _changed(turn)), None)


def _changed(turn: TurnRow) -> bool:
    return turn.tree_before is not None and turn.tree_after != turn.tree_before


def to_put_back(uow: UnitOfWork, turn: TurnRow) -> tuple[str, str | None] | None:
    """For an undoing turn: the commits between which the change lies."""
    for message in uow.messages.of_turn(turn.id):
        undone = uow.turns.get(message.id.partition(f":{_UNDO_KEY}")[2])
        if undone is not None and undone.tree_before is not None:
            return undone.tree_before, undone.tree_after
    return None


class Snapshots:
    """One turn's snapshots. Neither ever keeps a turn from running: without them it cannot be undone."""

    def __init__(self, runtime: Runtime, turn: TurnRow) -> None:
        self.before: str | None = None
        """The commit of the tree as the turn found it."""
        self.workdir = Path(runtime.settings.path)
        self._runtime = runtime
        self._turn = turn
        self._tree_before = ""
        self._beginning: asyncio.Task[Snapshot | None] | None = None
        self._after: str | None = None

    async def ready(self) -> None:
        """Keep the tree as it is: return when it is kept, or cannot be. Nothing may be done in it before.

        Not begun any earlier: while a program that waits for this starts up, the processors have time for it."""
        if self._turn.agent == IMAGE:
            return
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._snapshot(BEFORE), name=f"tree of {self._turn.id}")
        if (kept := await asyncio.shield(self._beginning)) is not None:
            self.before, self._tree_before = kept.commit, kept.tree

    async def close(self) -> None:
        """Give up what is under way."""
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.gather(self._beginning, return_exceptions=True)

    async def end(self) -> None:
        """Keep it as the turn left it."""
        if self.before is None:
            return
        after = await self._snapshot(AFTER)
        if after is None:
            return
        before = self.before
        last = before if after.tree == self._tree_before else after.commit
        self._after = last
        try:
            await self._runtime.commit(
                lambda uow: uow.turns.update(self._turn.id, tree_before=before, tree_after=last)
            )
        except StoreError as error:
            self._runtime.log("WRN", f"what turn {self._turn.id} changed is not kept: {error}")

    async def changed(self) -> tuple[str, ...]:
        """The files that are different at its end, as far as that is known."""
        if self._after in (None, self.before):
            return ()
        try:
            tree = await self._runtime.agents.tree(self.workdir)
            return (await tree.difference(self.before, self._after, limit_bytes=1)).files
        except CodeButlerError as error:
            self._runtime.log("WRN", f"the files that turn {self._turn.id} changed are not known: {error}")
            return ()

    async def _snapshot(self, when: str) -> Snapshot | None:
        try:
            tree = await self._runtime.agents.tree(self.workdir)
            return await tree.snapshot(f"{self._turn.id}/{when}")
        except CodeButlerError as error:
            self._runtime.log("WRN", f"this turn cannot be undone: {error}")
            return None


def undo(uow: UnitOfWork, turn: TurnRow, user: str, place: ThreadPlace, card_ts: str) -> None:
    """Queue the undoing of ``turn``, once; its card, at ``card_ts`` in ``place``, says so. Nothing else may be
    running: it could be writing."""
    key = undo_key(turn.id)
    if turn.tree_before is None or uow.messages.get(turn.channel_id, key) is not None:
        uow.post(place, ALREADY_UNDONE)
        return
    if uow.turns.in_states(*LIVE):
        uow.post(place, UNDO_BUSY)
        return
    words = words_of(uow, turn, WORDS_CHARS) or "…"
    undoing = TurnRow(
        id=uuid.uuid4().hex,
        conversation=turn.conversation,
        channel_id=turn.channel_id,
        thread_ts=place.thread_ts or "",
        agent=UNDO,
        created_at=uow.stamp,
        not_before=uow.stamp,
        user_id=user,
    )
    uow.turns.add(undoing)
    uow.messages.add(
        MessageRow(
            id=message_id(turn.channel_id, key),
            from_id=user,
            channel_id=turn.channel_id,
            content=f"undo: {words}",
            timestamp=uow.stamp,
            thread_ts=undoing.thread_ts,
            turn_id=undoing.id,
            agent=UNDO,
        )
    )
    uow.edit_ts(place, card_ts, said(UNDOING.format(words=plain(words))))


class UndoBackend:
    """Puts back what changed between the two commits of ``TurnRequest.put_back``. It has no sessions."""

    name = "undo"

    def __init__(self, tree: Callable[[Path], Awaitable[Tree]]) -> None:
        self._tree = tree
        self._under_way: set[asyncio.Task[Finished]] = set()

    async def start(self, turn: TurnRequest) -> AsyncIterator[AgentEvent]:
        """Run the turn. Half of it would be worse than all of it: once begun, it ends by itself."""
        yield ToolUse(turn.turn_id, "Undo", " ".join(turn.prompt.split())[:80])
        task = asyncio.create_task(self._undo(turn), name=f"undo of {turn.turn_id}")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        yield await asyncio.shield(task)

    async def answer(self, turn_id: str, request_id: str, answer: Answer) -> bool:  # noqa: ARG002
        """It never asks anything."""
        return False

    async def steer(self, turn_id: str, text: str) -> bool:  # noqa: ARG002
        """There is nothing to steer."""
        return False

    async def stop(self, turn_id: str) -> None:
        """It is over in a moment."""

    async def close(self) -> None:
        """Wait for what has begun."""
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
        return Finished(ok=True, text=undone_text(found), reason="done")

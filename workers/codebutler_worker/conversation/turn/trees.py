"""The working tree before and after each turn, so that what a turn changed can be seen and undone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from codebutler.errors import CodeButlerError, StoreError
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft
from codebutler_worker.desk.naming import IMAGE, UNDO
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.tree.tree import AFTER, BEFORE, Snapshot

LOOKED_AT = 50
_UNDO_KEY = "undo-"


def undo_key(turn_id: str) -> str:
    """What names the message that asks to undo a turn: there is at most one."""
    return f"{_UNDO_KEY}{turn_id}"


def changed_by(newest: Callable[[int], list[TurnRow]]) -> TurnRow | None:
    """The newest turn that changed (or, if its worker died, may have changed) the working tree."""
    return next((turn for turn in newest(LOOKED_AT) if _changed(turn)), None)


def _changed(turn: TurnRow) -> bool:
    return turn.tree_before is not None and turn.tree_after != turn.tree_before


def to_put_back(draft: Draft, turn: TurnRow) -> tuple[str, str | None] | None:
    """For an undoing turn: the commits between which the change lies."""
    if turn.agent != UNDO:
        return None
    for message in draft.uow.messages.of_turn(turn.id):
        undone = draft.uow.turns.get(message.id.partition(f":{_UNDO_KEY}")[2])
        if undone is not None and undone.tree_before is not None:
            return undone.tree_before, undone.tree_after
    return None


class TurnTrees:
    """One turn's snapshots. Neither ever keeps a turn from running: without them it cannot be undone."""

    def __init__(self, desk: Desk, turn: TurnRow) -> None:
        self._desk = desk
        self._turn = turn
        self._before: Snapshot | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._after: str | None = None
        self.workdir = Path(desk.settings.path)

    @property
    def before(self) -> str | None:
        """The commit of the tree as the turn found it."""
        return self._before.commit if self._before else None

    async def ready(self) -> None:
        """Keep the tree as it is: return when it is kept, or cannot be. Nothing may be done in it before.

        Not begun any earlier: while a program that waits for this starts up, the processors have time for it."""
        if self._turn.agent == IMAGE:
            return
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._begin(), name=f"tree of {self._turn.id}")
        await asyncio.shield(self._beginning)

    async def close(self) -> None:
        """Give up what is under way."""
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.gather(self._beginning, return_exceptions=True)

    async def _begin(self) -> None:
        self._before = await self._snapshot(BEFORE)

    async def end(self) -> None:
        """Keep it as the turn left it."""
        if self._before is None:
            return
        after = await self._snapshot(AFTER)
        if after is None:
            return
        before = self._before.commit
        last = before if after.tree == self._before.tree else after.commit
        self._after = last
        try:
            await self._desk.commit(
                lambda draft: draft.uow.turns.update(self._turn.id, tree_before=before, tree_after=last)
            )
        except StoreError as error:
            self._desk.report.log("WRN", f"what turn {self._turn.id} changed is not kept: {error}")

    async def changed(self) -> tuple[str, ...]:
        """The files that are different at its end, as far as that is known."""
        if self._after in (None, self.before):
            return ()
        try:
            tree = await self._desk.agents.tree(self.workdir)
            return (await tree.difference(self.before, self._after, limit_bytes=1)).files
        except CodeButlerError as error:
            self._desk.report.log(
                "WRN", f"the files that turn {self._turn.id} changed are not known: {error}"
            )
            return ()

    async def _snapshot(self, when: str) -> Snapshot | None:
        try:
            tree = await self._desk.agents.tree(self.workdir)
            return await tree.snapshot(f"{self._turn.id}/{when}")
        except CodeButlerError as error:
            self._desk.report.log("WRN", f"this turn cannot be undone: {error}")
            return None

"""Snapshots of the working tree before and after each turn, so that its changes can be seen, committed and
undone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from codebutler.domain.errors import CodeButlerError, StoreError
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import IMAGE
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.tree.tree import AFTER, BEFORE, Difference, Snapshot


class Snapshots:
    """One turn's snapshots. If they fail, the turn still runs, but it cannot be undone."""

    def __init__(self, runtime: Runtime, turn: TurnRow) -> None:
        self.before: str | None = None
        """The commit of the tree before the turn."""
        self.workdir = Path(runtime.settings.path)
        self._runtime = runtime
        self._turn = turn
        self._tree_before = ""
        self._beginning: asyncio.Task[Snapshot | None] | None = None
        self._after: str | None = None

    async def ready(self) -> None:
        """Take the first snapshot; returns when it is taken or has failed. The turn must not change anything before.
        It starts no earlier because the processors have time while an agent starts up."""
        if self._turn.agent == IMAGE:
            return
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._snapshot(BEFORE), name=f"tree of {self._turn.id}")
        if (kept := await asyncio.shield(self._beginning)) is not None:
            self.before, self._tree_before = kept.commit, kept.tree

    async def close(self) -> None:
        """Cancel a running snapshot."""
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.gather(self._beginning, return_exceptions=True)

    async def end(self) -> None:
        """Take a snapshot after the turn."""
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

    async def changed(self) -> Difference | None:
        """The turn's changes without the lines themselves; None if there are none or they are unknown."""
        if self.before is None or self._after in (None, self.before):
            return None
        try:
            tree = await self._runtime.agents.tree(self.workdir)
            return await tree.difference(self.before, self._after, limit_bytes=1)
        except CodeButlerError as error:
            self._runtime.log("WRN", f"what turn {self._turn.id} changed is not known: {error}")
            return None

    async def _snapshot(self, when: str) -> Snapshot | None:
        try:
            tree = await self._runtime.agents.tree(self.workdir)
            return await tree.snapshot(f"{self._turn.id}/{when}")
        except CodeButlerError as error:
            self._runtime.log("WRN", f"this turn cannot be undone: {error}")
            return None

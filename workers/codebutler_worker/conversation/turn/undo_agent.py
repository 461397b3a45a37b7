"""UndoBackend: ``!undo`` as an agent, so that it is queued, recorded and recovered like any other, and can itself be
undone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from codebutler.errors import CodeButlerError
from codebutler_worker.agents.backend import AgentEvent, Answer, Finished, ToolUse, TurnRequest
from codebutler_worker.present.lines import count
from codebutler_worker.present.undo import markdown
from codebutler_worker.tree.tree import Tree

UNKNOWN = "What was to be undone is not known any more: say `!undo` again."


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

    async def answer(self, turn_id: str, request_id: str, answer: Answer) -> bool:  # noqa: ARG002 - it never asks
        """See the port."""
        return False

    async def steer(self, turn_id: str, text: str) -> bool:  # noqa: ARG002 - there is nothing to steer
        """See the port."""
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
        return Finished(ok=True, text=markdown(found), reason="done")

"""The newest turns of each repository, as its worker told them last. They outlive the workers, and us."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from codebutler.config.programs import is_session
from codebutler.domain.model import TurnNote
from codebutler.intake.intake import Repo
from codebutler.intake.records import Notes

NOTE = "home.turns"


class LatestTurns:
    """``restore`` what an earlier life kept; ``on_change`` is told of each change."""

    def __init__(self, notes: Notes, on_change: Callable[[], None]) -> None:
        self._notes = notes
        self._on_change = on_change
        self._turns: dict[str, tuple[TurnNote, ...]] = {}
        self._unkept = False

    @property
    def by_repo(self) -> Mapping[str, tuple[TurnNote, ...]]:
        """Those of every repository."""
        return self._turns

    def tell(self, repo: str, turns: tuple[TurnNote, ...]) -> None:
        """A worker tells its newest turns."""
        if self._turns.get(repo) != turns:
            self._turns[repo] = turns
            self._unkept = True
            self._on_change()

    def awaits(self, repo: Repo, thread_ts: str) -> bool:
        """Whether a card in the thread waits for an answer, or a program for what is typed."""
        return any(
            turn.state == "waiting" or (turn.state == "running" and is_session(repo.config, turn.agent))
            for turn in self._turns.get(repo.name, ())
            if turn.thread_ts == thread_ts
        )

    async def restore(self) -> None:
        """Raises StoreError, msgspec.DecodeError."""
        kept = await self._notes.note(NOTE)
        self._turns = {
            **msgspec.json.decode(kept or "{}", type=dict[str, tuple[TurnNote, ...]]),
            **self._turns,
        }

    async def keep(self) -> None:
        """On disk, for the next life. Raises StoreError."""
        if self._unkept:
            self._unkept = False
            await self._notes.keep_note(NOTE, msgspec.json.encode(self._turns).decode())

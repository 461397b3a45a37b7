"""Publishes App Home to whoever has opened it, when it is opened and when something has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from codebutler.apphome.view import RepoCard, home, not_served, stranger
from codebutler.clock import Clock
from codebutler.config.programs import is_session
from codebutler.delivery.outgoing import every_text
from codebutler.errors import ChatError, ChatRateLimitedError, StoreError
from codebutler.intake.intake import Repo
from codebutler.intake.notes import Notes
from codebutler.model import TurnNote
from codebutler.text.links import at_home

PACE_S = 3.0
"""Changes within it are one publication; Slack allows views.publish 100 times a minute and more for an app."""
MAX_READERS = 100
READERS, TURNS = "home.readers", "home.turns"

log = logging.getLogger("codebutler.apphome")


class Board(Protocol):
    """The chat, as far as homes go."""

    async def publish_home(self, user: str, blocks: list[dict[str, Any]]) -> None:
        """Replace what the user's home shows. Raises ChatError."""


Scene = Callable[[str, Mapping[str, tuple[TurnNote, ...]]], tuple[list[RepoCard] | None, str]]
"""(user, turns by repository) to (the cards the user may see, None for a stranger; what is wrong with Slack)."""


class AppHome:
    """``run`` is its life. What workers have told outlives them, and us."""

    def __init__(
        self,
        board: Board,
        notes: Notes,
        scene: Scene,
        clock: Clock,
        redact: Callable[[str], str],
        workspace_url: Callable[[], Awaitable[str]],
    ) -> None:
        self._board = board
        self._notes = notes
        self._scene = scene
        self._clock = clock
        self._redact = redact
        self._workspace_url = workspace_url
        self._readers: list[str] = []
        self._turns: dict[str, tuple[TurnNote, ...]] = {}
        self._due: set[str] = set()
        self._vain: set[str] = set()
        self._shown: dict[str, list[dict[str, Any]]] = {}
        self._news = asyncio.Event()
        self._unkept = False

    def opened(self, user: str) -> None:
        """Somebody looks at our home."""
        self._readers = [user, *(each for each in self._readers if each != user)][:MAX_READERS]
        self._shown.pop(user, None)
        self._due.add(user)
        self._unkept = True
        self._news.set()

    @property
    def turns(self) -> Mapping[str, tuple[TurnNote, ...]]:
        """The newest turns of each repository, as its worker told them last."""
        return self._turns

    def vain(self, user: str) -> None:
        """They pressed a button of what is not served any more: they see that, and what is left."""
        self._vain.add(user)
        self.opened(user)

    def overview(self, repo: str, turns: tuple[TurnNote, ...]) -> None:
        """A worker tells its newest turns."""
        if self._turns.get(repo) != turns:
            self._turns[repo] = turns
            self._unkept = True
            self.changed()

    def changed(self) -> None:
        """Something else that homes show has changed."""
        self._due.update(self._readers)
        self._news.set()

    def cards(self, user: str) -> list[RepoCard]:
        """What the user may see of the repositories."""
        return self._scene(user, self._turns)[0] or []

    def awaits(self, repo: Repo, thread_ts: str) -> bool:
        """Whether a card in the thread waits for an answer, or a program for what is typed."""
        return any(
            turn.state == "waiting" or (turn.state == "running" and is_session(repo.config, turn.agent))
            for turn in self._turns.get(repo.name, ())
            if turn.thread_ts == thread_ts
        )

    async def run(self) -> None:
        """Until cancelled. A home that cannot be published is shown by the next change."""
        await self._restore()
        while True:
            await self._news.wait()
            self._news.clear()
            await self._keep()
            while self._due:
                await self._publish(self._due.pop())
            await self._clock.sleep(PACE_S)

    async def _restore(self) -> None:
        try:
            readers, turns = await self._notes.note(READERS), await self._notes.note(TURNS)
            kept = msgspec.json.decode(turns or "{}", type=dict[str, tuple[TurnNote, ...]])
            self._turns = {**kept, **self._turns}
            known = msgspec.json.decode(readers or "[]", type=list[str])
            self._readers += [user for user in known if user not in self._readers]
        except (StoreError, msgspec.DecodeError) as error:
            log.warning("App Home begins anew: %s", error)

    async def _keep(self) -> None:
        if not self._unkept:
            return
        self._unkept = False
        try:
            await self._notes.keep_note(READERS, msgspec.json.encode(self._readers).decode())
            await self._notes.keep_note(TURNS, msgspec.json.encode(self._turns).decode())
        except StoreError as error:
            log.warning("App Home is not kept for the next start: %s", error)

    async def _publish(self, user: str) -> None:
        cards, trouble = self._scene(user, self._turns)
        blocks = stranger() if cards is None else home(cards, trouble, self._clock.now())
        if user in self._vain:
            blocks = [*not_served(), *blocks]
        url = await self._workspace_url()
        blocks = [self._cleaned(block, url) for block in blocks]
        if self._shown.get(user) == blocks:
            return
        try:
            await self._board.publish_home(user, blocks)
            self._shown[user] = blocks
            self._vain.discard(user)
        except ChatRateLimitedError as error:
            self._due.add(user)
            await self._clock.sleep(error.retry_after_s)
        except ChatError as error:
            log.info("the home of %s could not be published: %s", user, error)

    def _cleaned(self, block: dict[str, Any], url: str) -> dict[str, Any]:
        return every_text(block, lambda text: at_home(self._redact(text), url))

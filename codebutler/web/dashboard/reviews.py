"""The changes shown on a dashboard page, and the review comments sent from there. Whoever has the dashboard's key is
the operator: their comments are posted in the run's thread for everybody to see, and go through the intake like
anything else typed on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import uuid4

from codebutler.control.chat import Speaker
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.refs import MessageRef
from codebutler.intake.repos import Served
from codebutler.protocol.conversations import AskDiff, RunChanges
from codebutler.supervisor.workers import Workers
from codebutler.text.markup import Addresses
from codebutler.web.dashboard.changes import ChangesView, Comments, message_of, view_of

UNKNOWN = "no repository of that name is served"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSources:
    """``named``: finds a repository by name; ``workers`` are asked about a run; ``redact`` removes secrets;
    ``addresses`` finds where people see messages."""

    named: Callable[[str], Served | None]
    workers: Workers
    speaker: Speaker
    redact: Callable[[str], str]
    addresses: Callable[[], Awaitable[Addresses]]


class ChangeReviews:
    """Every page is fetched anew: nothing is stored."""

    def __init__(self, sources: ReviewSources) -> None:
        self._sources = sources

    async def view(self, repo: str, run: str) -> ChangesView:
        """What the run changed. Raises CodeButlerError with one line that says why that is unknown."""
        sources = self._sources
        served = self._served(repo)
        told = await sources.workers.ask(repo, AskDiff(request_id=uuid4().hex, turn=run), RunChanges)
        if told.problem:
            raise CodeButlerError(sources.redact(told.problem))
        url = (await sources.addresses())(served.channel_id, told.thread) if told.thread else ""
        # Searching a long diff for secrets takes a while.
        return await asyncio.to_thread(view_of, repo, told, url, sources.redact)

    async def send(self, given: Comments) -> None:
        """Post the comments in the run's thread. Raises CodeButlerError with one line that says why it failed."""
        served, speaker = self._served(given.repo), self._sources.speaker
        thread = MessageRef(given.thread) or None
        text = message_of(given.comments)
        ref = await speaker.post(served, text, thread)
        await speaker.said(served, ref, text, thread)
        speaker.check_up(served)

    def _served(self, name: str) -> Served:
        if (served := self._sources.named(name)) is None:
            raise CodeButlerError(UNKNOWN)
        return served

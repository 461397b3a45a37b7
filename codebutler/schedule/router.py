"""Takes the commands that the parent runs out of the stream of events: they concern no worker."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from codebutler.errors import ChatError, StoreError
from codebutler.intake.entry import Entry, EventRouter
from codebutler.intake.journal import Journal
from codebutler.model import OPERATOR, Command, MessagePosted, Post, React, SlashCommand
from codebutler.process.tasks import Tasks
from codebutler.schedule.desk import Asker
from codebutler.schedule.voice import Voice
from codebutler.words import runs_in_parent

Answer = Callable[[str, str, Asker], Awaitable[str]]
"""(command, argument, who asks) to what they read. Raises StoreError."""
ANSWERED = "white_check_mark"


log = logging.getLogger("codebutler.schedule")


@dataclass(frozen=True, slots=True)
class Around:
    """Which repository a channel belongs to ("" = none), and since when this supervisor lives."""

    repo_of: Callable[[str], str]
    since: datetime


class ScheduleRouter:
    """An EventRouter before another one. An entry is settled once its answer stands in the channel: what a crash
    interrupts comes again, and is answered under the same operation id."""

    def __init__(
        self,
        router: EventRouter,
        answer: Answer,
        voice: Voice,
        journal: Journal,
        tasks: Tasks,
        around: Around,
    ) -> None:
        self._router = router
        self._answer_of = answer
        self._voice = voice
        self._journal = journal
        self._tasks = tasks
        self._around = around

    def route(self, entry: Entry) -> None:
        """See the port. What the parent runs is answered here and seen by no worker."""
        repo = self._around.repo_of(entry.channel)
        ours = isinstance(entry.request, Command) and runs_in_parent(entry.request.name)
        if repo and ours and isinstance(entry.event, MessagePosted | SlashCommand):
            self._tasks.start(self._answer(entry, repo), name=f"answer to {entry.event.key}")
        else:
            self._router.route(entry)

    async def _answer(self, entry: Entry, repo: str) -> None:
        event, request = entry.event, entry.request
        assert isinstance(event, MessagePosted | SlashCommand)
        assert isinstance(request, Command)
        in_thread = event.root_ts if isinstance(event, MessagePosted) else None
        asker = Asker(event.user, repo, event.channel, _thread_of(event), event.key)
        only_for = event.user if isinstance(event, SlashCommand) else ""
        try:
            text = await self._answer_of(request.name, request.argument, asker)
            post = Post(text=text, thread_ts=in_thread, only_for=only_for)
            await self._voice.post(
                event.channel, event.key, post, unsure=entry.received_at < self._around.since
            )
            if event.user == OPERATOR and isinstance(event, MessagePosted):
                # Whoever said it waits for its outcome.
                await self._voice.react(event.channel, event.key, React(target_ts=event.ts, name=ANSWERED))
        except ChatError as error:
            log.warning("[%s] !%s could not be answered: %s", repo, request.name, error)
        except StoreError as error:
            # The entry stays: it is answered after the next start.
            log.warning("[%s] !%s waits for the disk: %s", repo, request.name, error)
            return
        await self._journal.settle(entry.seq)


def _thread_of(event: MessagePosted | SlashCommand) -> str | None:
    """Where a timer speaks: in the thread it was set in; outside threads, under the words that set it."""
    return event.root_ts if isinstance(event, MessagePosted) else None

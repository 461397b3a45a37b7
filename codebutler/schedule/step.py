"""Takes the words about time out of the stream of events: they concern the parent, not a worker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from codebutler.dispatch.dispatcher import GoOn
from codebutler.errors import ChatError, StoreError
from codebutler.intake.entry import Entry
from codebutler.intake.journal import Journal
from codebutler.model import OPERATOR, Command, MessagePosted, Post, React, SlashCommand
from codebutler.process.tasks import Tasks
from codebutler.schedule.desk import Asker, ScheduleDesk
from codebutler.schedule.voice import Voice

OURS = frozenset({"jobs", "in", "at"})
ANSWERED = "white_check_mark"


log = logging.getLogger("codebutler.schedule")


class ScheduleWords:
    """A step of the dispatcher. An entry is settled once its answer stands in the channel: what a crash
    interrupts comes again, and is answered under the same operation id. ``repo_of`` says which repository a channel
    belongs to ("" = none), ``since`` since when this supervisor lives."""

    def __init__(
        self,
        desk: ScheduleDesk,
        voice: Voice,
        journal: Journal,
        tasks: Tasks,
        repo_of: Callable[[str], str],
        since: datetime,
    ) -> None:
        self._desk = desk
        self._voice = voice
        self._journal = journal
        self._tasks = tasks
        self._repo_of = repo_of
        self._since = since

    def take(self, entry: Entry, go_on: GoOn) -> None:
        """The words about time are answered here and seen by no worker."""
        repo = self._repo_of(entry.channel)
        ours = isinstance(entry.request, Command) and entry.request.name in OURS
        if repo and ours and isinstance(entry.event, MessagePosted | SlashCommand):
            self._tasks.start(self._answer(entry, repo), name=f"answer to {entry.event.key}")
        else:
            go_on(entry)

    async def _answer(self, entry: Entry, repo: str) -> None:
        event, request = entry.event, entry.request
        assert isinstance(event, MessagePosted | SlashCommand)
        assert isinstance(request, Command)
        in_thread = event.root_ts if isinstance(event, MessagePosted) else None
        asker = Asker(event.user, repo, event.channel, _thread_of(event), event.key)
        only_for = event.user if isinstance(event, SlashCommand) else ""
        try:
            text = await self._desk.answer(request.name, request.argument, asker)
            post = Post(text=text, thread_ts=in_thread, only_for=only_for)
            await self._voice.post(event.channel, event.key, post, unsure=entry.received_at < self._since)
            if event.user == OPERATOR and isinstance(event, MessagePosted):
                # Whoever said it waits for its outcome.
                await self._voice.react(
                    event.channel, event.key, React(target_ts=event.ts, name=ANSWERED, value="outcome")
                )
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

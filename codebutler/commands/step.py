"""Takes the commands that the parent runs out of the stream of events, and answers them: they concern no worker."""

from __future__ import annotations

import logging
from collections.abc import Callable

from codebutler.commands.asked import Resources
from codebutler.commands.table import answer
from codebutler.dispatch.dispatcher import GoOn
from codebutler.errors import ChatError, StoreError
from codebutler.intake.entry import Entry
from codebutler.intake.journal import Journal
from codebutler.model import OPERATOR, Command, MessagePosted, Post, React, SlashCommand
from codebutler.process.tasks import Tasks
from codebutler.schedule.desk import Asker
from codebutler.schedule.voice import Voice
from codebutler.words import WORDS

ANSWERED = "white_check_mark"

log = logging.getLogger("codebutler.commands")


class ParentCommands:
    """A step of the dispatcher. An entry is settled once its answer stands in the channel: what a crash
    interrupts comes again, and is answered under the same operation id. ``repo_of`` says which repository a channel
    belongs to ("" = none)."""

    def __init__(
        self,
        resources: Resources,
        voice: Voice,
        journal: Journal,
        tasks: Tasks,
        repo_of: Callable[[str], str],
    ) -> None:
        self._resources = resources
        self._voice = voice
        self._journal = journal
        self._tasks = tasks
        self._repo_of = repo_of

    def take(self, entry: Entry, go_on: GoOn) -> None:
        """What the parent runs is seen by no worker."""
        repo, request = self._repo_of(entry.channel), entry.request
        word = WORDS.get(request.name) if isinstance(request, Command) else None
        ours = word is not None and word.runs == "parent"
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
            text = await answer(request, self._resources, asker)
            post = Post(text=text, thread_ts=in_thread, only_for=only_for)
            await self._voice.post(
                event.channel, event.key, post, unsure=entry.received_at < self._resources.since
            )
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

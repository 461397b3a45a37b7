"""Takes the commands that the parent runs out of the stream of events, and answers them: they concern no worker."""

from __future__ import annotations

import logging
from collections.abc import Callable

from codebutler.domain.commands import WORDS, visible_only_to
from codebutler.domain.errors import ChatError, StoreError
from codebutler.domain.message import Message
from codebutler.domain.model import Command, MessagePosted, Post, SlashCommand, TurnOutcome
from codebutler.intake.dispatcher import GoOn
from codebutler.intake.entry import Entry
from codebutler.intake.journal import Journal
from codebutler.parent.commands.asked import Resources
from codebutler.parent.commands.table import answer
from codebutler.platform.tasks import Tasks
from codebutler.schedule.desk import Asker
from codebutler.schedule.voice import Voice
from codebutler.text.markup import people_in

log = logging.getLogger("codebutler.parent.commands")


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
        is_slash = isinstance(event, SlashCommand)
        only_for = visible_only_to(event.user, request.name, request.argument) if is_slash else ""
        try:
            text = await answer(request, self._resources, asker)
            message = Message(markdown=text, names=people_in(text))
            post = Post(message=message, thread_ts=in_thread, only_for=only_for)
            await self._voice.post(
                event.channel, event.key, post, unsure=entry.received_at < self._resources.since
            )
            outcome: TurnOutcome = "done"
        except ChatError as error:
            log.warning("[%s] !%s could not be answered: %s", repo, request.name, error)
            outcome = "failed"
        except StoreError as error:
            # The entry stays: it is answered after the next start.
            log.warning("[%s] !%s waits for the disk: %s", repo, request.name, error)
            return
        if isinstance(event, MessagePosted):
            await self._voice.ended(event.channel, event.ts, outcome)
        await self._journal.settle(entry.seq)


def _thread_of(event: MessagePosted | SlashCommand) -> str | None:
    """Where a timer speaks: in the thread it was set in; outside threads, under the words that set it."""
    return event.root_ts if isinstance(event, MessagePosted) else None

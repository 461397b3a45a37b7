"""The commands that the parent runs: taken out of the stream of events, and answered by the handlers beside this file.

Which there are stands in codebutler.domain.commands.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any

from codebutler.control.listeners import Listeners
from codebutler.domain.clock import Clock
from codebutler.domain.commands import DIRECT, WORDS, Word, usage_error, visible_only_to
from codebutler.domain.errors import ChatError, StoreError
from codebutler.domain.message import Message
from codebutler.domain.model import Command, MessagePosted, Post, SlashCommand, TurnOutcome
from codebutler.intake.dispatcher import GoOn
from codebutler.intake.journal import Journal
from codebutler.intake.records import Entry
from codebutler.intake.repos import Repo
from codebutler.parent.apphome_page import RepoCard
from codebutler.platform.tasks import Tasks
from codebutler.schedule.commands import Asker, ScheduleCommands
from codebutler.schedule.scheduler import Publish
from codebutler.text.markup import people_in

log = logging.getLogger("codebutler.parent.commands")


@dataclass(frozen=True, slots=True)
class Resources:
    """What handlers may use. ``since``: when this supervisor began."""

    schedule: ScheduleCommands
    clock: Clock
    since: datetime


@dataclass(frozen=True, slots=True)
class Asked:
    """``argument`` is one that the command takes; ``asker`` says who asks, and from where."""

    resources: Resources
    argument: str
    asker: Asker


Handler = Callable[[Asked], Awaitable[str]]
"""The text that the person reads. It may be called twice for one wish, to the same effect. Raises StoreError."""


@dataclass(frozen=True, slots=True)
class AskedDirectly:
    """What the answer in a direct message is made of: somebody's repositories by channel, what each shows, the time."""

    repos: Mapping[str, Repo]
    cards: Sequence[RepoCard]
    now: datetime


async def answer(request: Command, resources: Resources, asker: Asker) -> str:
    """Do what is said; the text is what the person reads. Raises StoreError."""
    word = WORDS[request.name]
    if not word.takes(request.argument):
        return usage_error(word)
    return await handler_of(word)(Asked(resources, request.argument, asker))


def handler_of(word: Word) -> Handler:
    """What does a word that the parent does."""
    found: Handler = _found(*word.done_by)
    return found


def direct_answer(name: str, asked: AskedDirectly) -> str:
    """What one of ``DIRECT`` says in a direct message."""
    return str(_found(*DIRECT[name].direct.split("."))(asked))


def _found(file: str, function: str) -> Any:
    return getattr(import_module(f".{file}", __package__), function)


class ParentCommands:
    """A step of the dispatcher. An entry is settled once its answer stands in the channel: what a crash
    interrupts comes again, and is answered under the same operation id. ``repo_of`` says which repository a channel
    belongs to ("" = none)."""

    def __init__(
        self,
        resources: Resources,
        publish: Publish,
        listeners: Listeners,
        journal: Journal,
        tasks: Tasks,
        repo_of: Callable[[str], str],
    ) -> None:
        self._resources = resources
        self._publish = publish
        self._listeners = listeners
        self._journal = journal
        self._tasks = tasks
        self._repo_of = repo_of

    def take(self, entry: Entry, go_on: GoOn) -> None:
        """What the parent runs is seen by no worker."""
        event, request = entry.event, entry.request
        if isinstance(request, Command) and isinstance(event, MessagePosted | SlashCommand):
            word, repo = WORDS.get(request.name), self._repo_of(entry.channel)
            if repo and word is not None and word.runs == "parent":
                answering = self._answer(entry, event, request, repo)
                self._tasks.start(answering, name=f"answer to {event.key}")
                return
        go_on(entry)

    async def _answer(
        self, entry: Entry, event: MessagePosted | SlashCommand, request: Command, repo: str
    ) -> None:
        thread_ts = event.root_ts if isinstance(event, MessagePosted) else None
        asker = Asker(event.user, repo, event.channel, thread_ts, event.key)
        is_slash = isinstance(event, SlashCommand)
        only_for = visible_only_to(event.user, request.name, request.argument) if is_slash else ""
        try:
            text = await answer(request, self._resources, asker)
            message = Message(markdown=text, names=people_in(text))
            post = Post(message=message, thread_ts=thread_ts, only_for=only_for)
            unsure = entry.received_at < self._resources.since
            await self._publish(event.channel, event.key, post, unsure)
            outcome: TurnOutcome = "done"
        except ChatError as error:
            log.warning("[%s] !%s could not be answered: %s", repo, request.name, error)
            outcome = "failed"
        except StoreError as error:
            # The entry stays: it is answered after the next start.
            log.warning("[%s] !%s waits for the disk: %s", repo, request.name, error)
            return
        if isinstance(event, MessagePosted):
            await self._listeners.ended(event.channel, (event.ts,), outcome)
        await self._journal.settle(entry.seq)

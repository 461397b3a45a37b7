"""The parent's commands: a step of the dispatcher takes them out of the stream of events, and the handlers in this
folder answer.

codebutler.domain.commands lists them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any

from msgspec import Struct

from codebutler.chat.listeners import Listeners
from codebutler.domain.clock import Clock
from codebutler.domain.command_help import usage_error
from codebutler.domain.commands import DIRECT, WORDS, visible_only_to
from codebutler.domain.errors import ChatError, ChatUnreachableError, StoreError
from codebutler.domain.message import Message
from codebutler.domain.model import Command, MessagePosted, Post, SlashCommand, TurnOutcome
from codebutler.domain.refs import NO_PERSON, ConversationRef
from codebutler.domain.word import Word
from codebutler.intake.dispatcher import GoOn
from codebutler.intake.journal import Journal
from codebutler.intake.records import Entry
from codebutler.intake.repos import Repo
from codebutler.parent.apphome_page import RepoCard
from codebutler.parent.moving import RepoMoves
from codebutler.parent.new_repos import NewRepos
from codebutler.parent.spending import Ledgers
from codebutler.platform.tasks import Tasks
from codebutler.schedule.commands import Asker, ScheduleCommands
from codebutler.schedule.scheduler import Publish
from codebutler.text.markup import people_in

OUR_ERROR = "❌ I could not do that because of an internal error: see CodeButler's log."

log = logging.getLogger("codebutler.parent.commands")


class Resources(Struct, frozen=True):
    """What handlers may use. ``since``: when this supervisor started."""

    schedule: ScheduleCommands
    new_repos: NewRepos
    moves: RepoMoves
    ledgers: Ledgers
    clock: Clock
    since: datetime


class Asked(Struct, frozen=True):
    """A command to run. ``argument`` is valid for it; ``asker`` says who asks, and where."""

    resources: Resources
    argument: str
    asker: Asker


Handler = Callable[[Asked], Awaitable[str]]
"""The reply. A second call for the same command has the same effect. Raises StoreError."""


class AskedDirectly(Struct, frozen=True):
    """The data of an answer in a direct message: the person's repositories by channel, the state of each, the
    time."""

    repos: Mapping[ConversationRef, Repo]
    cards: Sequence[RepoCard]
    now: datetime


async def answer(request: Command, resources: Resources, asker: Asker) -> str:
    """Run the command; returns the reply. Raises StoreError."""
    word = WORDS[request.name]
    if not word.takes(request.argument):
        return usage_error(word)
    return await handler_of(word)(Asked(resources, request.argument, asker))


def handler_of(word: Word) -> Handler:
    """The handler of one of the parent's commands."""
    found: Handler = _found(*word.done_by)
    return found


def direct_answer(name: str, asked: AskedDirectly) -> str:
    """The answer of one of ``DIRECT`` in a direct message."""
    return str(_found(*DIRECT[name].direct.split("."))(asked))


def _found(file: str, function: str) -> Any:
    return getattr(import_module(f".{file}", __package__), function)


class ParentCommands:
    """A step of the dispatcher. An entry is settled once its answer is in the channel: an interrupted one is
    dispatched again, and answered under the same operation ID. ``repo_of`` gives a channel's repository ("" =
    none)."""

    def __init__(
        self,
        resources: Resources,
        publish: Publish,
        listeners: Listeners,
        journal: Journal,
        tasks: Tasks,
        repo_of: Callable[[ConversationRef], str],
    ) -> None:
        self._resources = resources
        self._publish = publish
        self._listeners = listeners
        self._journal = journal
        self._tasks = tasks
        self._repo_of = repo_of

    def take(self, entry: Entry, go_on: GoOn) -> None:
        """Answer the parent's commands, and pass everything else on."""
        event, request = entry.event, entry.request
        if isinstance(request, Command) and isinstance(event, MessagePosted | SlashCommand):
            word, repo = WORDS.get(request.name), self._repo_of(entry.channel)
            if word is not None and word.runs == "parent" and (repo or word.anywhere):
                answering = self._answer(entry, event, request, repo)
                self._tasks.start(answering, name=f"answer to {event.key}")
                return
        go_on(entry)

    async def _answer(
        self, entry: Entry, event: MessagePosted | SlashCommand, request: Command, repo: str
    ) -> None:
        thread = event.root if isinstance(event, MessagePosted) else None
        asker = Asker(event.user, repo, event.channel, thread, event.key)
        is_slash = isinstance(event, SlashCommand)
        only_for = visible_only_to(event.user, request.name, request.argument) if is_slash else NO_PERSON
        try:
            text, outcome = await self._reply(request, asker)
            # Nobody else is notified of an answer that names them.
            names = tuple(user for user in people_in(text) if user == event.user)
            message = Message(markdown=text, names=names)
            post = Post(message=message, thread=thread, only_for=only_for)
            unsure = entry.received_at < self._resources.since
            await self._publish(event.channel, event.key, post, unsure)
        except (ChatUnreachableError, StoreError) as error:
            # The chats are closing, or the disk is full. The entry stays: it is answered after the next start.
            log.warning("[%s] !%s is waiting: %s", repo, request.name, error)
            return
        except ChatError as error:
            log.warning("[%s] could not answer !%s: %s", repo, request.name, error)
            outcome = "failed"
        if isinstance(event, MessagePosted):
            await self._listeners.ended(event.channel, (event.ref,), outcome)
        await self._journal.settle(entry.seq)

    async def _reply(self, request: Command, asker: Asker) -> tuple[str, TurnOutcome]:
        try:
            return await answer(request, self._resources, asker), "done"
        except (ChatError, StoreError):
            raise
        except Exception:  # unanswered, it would be tried again at each start
            log.exception("[%s] !%s failed", asker.repo, request.name)
            return OUR_ERROR, "failed"

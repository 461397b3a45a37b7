"""Where direct messages come in: each belongs to the repository its thread is about, or asks for one.

A thread's repository is on disk before the event that decides it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from codebutler.config.schema import Config
from codebutler.domain.commands import DIRECT, WORDS
from codebutler.domain.message import REPO_ACTION
from codebutler.domain.model import (
    ButtonClicked,
    Command,
    Event,
    MessageEdited,
    MessagePosted,
    NoRequest,
    SlashCommand,
)
from codebutler.intake.intake import Intake, Outcome, Repo
from codebutler.parent.direct.book import Book
from codebutler.parent.direct.places import allowed, home_of, items_of
from codebutler.parent.direct.wording import called, named, worded
from codebutler.text.requests import request_of


class DirectDoor:
    """The intake's Direct. ``repos`` are those that are served, by channel."""

    def __init__(self, book: Book, repos: Callable[[], Mapping[str, Repo]]) -> None:
        self._book = book
        self._repos = repos

    def repo_of(self, event: Event) -> Repo | None:
        """The repository that the event's thread is about, None if that is not known or not served."""
        return self._repos().get(home_of(self._book, event))

    async def accept(self, intake: Intake, event: Event, *, missed: bool) -> Outcome:
        """As the intake's."""
        home = home_of(self._book, event)
        repo = self._repos().get(home)
        if repo is not None and not isinstance(event, SlashCommand):
            return await self._take(intake, home, repo, event, missed=missed)
        mine = allowed(self._repos(), event.user)
        if not mine:
            request = request_of(event, ())
            decision = intake.decide(Repo("", Config()), event, request)
            await intake.refuse(event, request, decision)
            return "refused"
        if isinstance(event, MessagePosted):
            return await self._begin(intake, event, mine, missed=missed)
        if isinstance(event, MessageEdited) and (found := named(event.text, mine.values())):
            await self._choose(event, found[0], mine)
            event = replace(event, text=found[1])
        if isinstance(event, ButtonClicked):
            repo = called(event.value, mine.values()) if event.action_id == REPO_ACTION else None
            if repo is None:
                return "ignored"
            await self._choose(event, repo, mine)
        return await intake.keep(event, request_of(event, ()))

    async def _begin(
        self, intake: Intake, event: MessagePosted, mine: Mapping[str, Repo], *, missed: bool
    ) -> Outcome:
        """A message of a thread that is about no repository yet."""
        in_thread = event.thread_ts is not None
        if in_thread and (repo := called(event.text, mine.values())) is not None:
            await self._choose(event, repo, mine)
            return await intake.keep(replace(event, text=""), NoRequest())
        event = event if in_thread else replace(event, text=worded(event.text))
        request = request_of(event, frozenset().union(*(repo.prefixes for repo in mine.values())))
        if isinstance(request, Command) and _is_ours(request, len(mine)):
            return await intake.keep(event, request)
        found = named(event.text, mine.values())
        repo = found[0] if found else next(iter(mine.values())) if len(mine) == 1 else None
        if repo is None:
            some = next(iter(mine.values()))
            return await intake.keep(intake.dated(some, event) if missed else event, NoRequest())
        home = next(home for home, each in mine.items() if each is repo)
        return await self._take(intake, home, repo, event, missed=missed)

    async def _take(self, intake: Intake, home: str, repo: Repo, event: Event, *, missed: bool) -> Outcome:
        """Everything said here is said to us."""
        await self._book.place(home, event.channel, items_of(event))
        if isinstance(event, MessagePosted | MessageEdited) and (found := named(event.text, (repo,))):
            event = replace(event, text=found[1])
        if isinstance(event, MessagePosted):
            event = replace(event, mentioned=True)
        return await intake.take(repo, event, missed=missed)

    async def _choose(self, event: Event, repo: Repo, mine: Mapping[str, Repo]) -> None:
        for home, each in mine.items():
            if each is repo:
                await self._book.place(home, event.channel, items_of(event))


def _is_ours(request: Command, repos: int) -> bool:
    """What is answered for all repositories, and what none knows. With one, its worker knows more."""
    if repos > 1 and request.name not in WORDS:
        return True
    return request.name in DIRECT and (request.name == "help" or repos > 1) and not request.argument

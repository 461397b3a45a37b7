"""Turns a parsed event into a committed journal entry: authorise, deduplicate, commit, dispatch.

Once dispatched, it may be acknowledged. It knows no chat's JSON; every source of events calls ``accept``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.permission import Decision, decide_request
from codebutler.config.programs import is_session
from codebutler.config.schema import Config
from codebutler.domain.clock import Clock
from codebutler.domain.errors import StoreFullError
from codebutler.domain.model import (
    ButtonClicked,
    Command,
    Event,
    MessageEdited,
    MessagePosted,
    Prompt,
    Request,
)
from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef
from codebutler.intake.direct import DirectReader
from codebutler.intake.journal import Journal
from codebutler.intake.records import Entry
from codebutler.intake.repos import Repo
from codebutler.platform.kill_points import reached
from codebutler.text.requests import request_of

NOTICE_INTERVAL_S = 3600.0
# An event that took longer than this to reach us was written while we were away.
LATE_S = 60.0

Outcome = Literal["accepted", "duplicate", "refused", "ignored"]


class Refusals(Protocol):
    """Where decisions go: always to the audit log; a refusal also to the person if ``tell`` is set."""

    def refused(self, event: Event, request: Request, decision: Decision, *, tell: bool) -> None:
        """Record a decision, and notify the person if ``tell`` is set. Returns at once."""

    def commanded(self, event: Event, request: Request) -> None:
        """A command or a click is about to be executed. (A prompt's line is written when its turn ends.)"""

    def counted(self, outcome: Outcome, seconds: float) -> None:
        """What became of an event, and how long that took."""

    def no_space(self, event: Event) -> None:
        """The disk is full: people are notified that nothing new starts. Returns at once."""


def _nothing(_repo: Repo, _thread: MessageRef) -> bool:
    return False


class Threads(Struct, frozen=True):
    """What is known about threads: ``awaits`` says whether something in one waits for a reply, ``direct``
    which repository one of a direct conversation is about."""

    awaits: Callable[[Repo, MessageRef], bool] = _nothing
    direct: DirectReader | None = None


NOTHING_KNOWN = Threads()


class Intake:
    """Accepts events; one per parent. ``repos`` maps channel ID to repository and may change while we run. Messages
    written before this object was created count as written while we were away. ``dispatch`` passes accepted events
    on."""

    def __init__(
        self,
        *,
        repos: Mapping[ConversationRef, Repo],
        journal: Journal,
        dispatch: Callable[[Entry], None],
        refusals: Refusals,
        clock: Clock,
        threads: Threads = NOTHING_KNOWN,
    ) -> None:
        self._repos = repos
        self._journal = journal
        self._dispatch = dispatch
        self._refusals = refusals
        self._clock = clock
        self._threads = threads
        self._away_until = clock.now()
        self._noticed: dict[PersonRef, float] = {}
        self._without_space: set[ConversationRef] = set()

    async def accept(self, event: Event, *, missed: bool = False) -> Outcome:
        """Returns once the event is on disk or needs no storing. Raises StoreError if it cannot be stored.

        ``missed``: it came by catch-up or by a retry of the chat, so it may be late. A live event never is,
        however wrong our clock may be.
        """
        began_s = self._clock.monotonic()
        admitted = await self._admitted(event, missed=missed)
        if isinstance(admitted, str):
            outcome = admitted
        else:
            event, request = admitted
            try:
                entry = await self._journal.append(event, request)
            except StoreFullError:
                if event.channel not in self._without_space:
                    self._without_space.add(event.channel)
                    self._refusals.no_space(event)
                raise
            self._without_space.discard(event.channel)
            outcome = "duplicate" if entry is None else "accepted"
            if entry is not None:
                if isinstance(request, Command) or isinstance(event, ButtonClicked):
                    self._refusals.commanded(event, request)
                reached("route.before")
                self._dispatch(entry)
                reached("route.after")
        self._refusals.counted(outcome, self._clock.monotonic() - began_s)
        return outcome

    async def _admitted(self, event: Event, *, missed: bool) -> tuple[Event, Request] | Outcome:
        """The event as its repository reads it, and its request; or why it goes no further."""
        repo = self._repos.get(event.channel)
        request: Request | None = None
        # A private chat may be a repository's own.
        if repo is None and self._threads.direct is not None and event.is_direct:
            if (read := await self._threads.direct.read(event)) is None:
                return "ignored"
            repo, event, request = read
        if repo is None:
            return "ignored"
        if missed:
            max_age_hours = repo.config.catch_up.max_age_hours
            event = dated(event, self._clock.now(), self._away_until, max_age_hours)
        if request is not None:
            return event, request
        request = request_of(event, repo.prefixes)
        is_handled = isinstance(event, MessagePosted) and event.handled == "yes"
        if is_handled or (_not_for_us(repo.config, event, request) and not self._is_awaited(repo, event)):
            await self._journal.pass_over(event)
            return "ignored"
        decision = decide_request(repo.config, event, request)
        if not decision.allowed:
            await self._refuse(event, request, decision)
            return "refused"
        return event, request

    def serves(self, event: Event) -> bool:
        """Whether the event concerns a served repository."""
        return self._repo_of(event) is not None

    async def admits(self, event: Event) -> bool:
        """Whether the event would be accepted, without accepting it; a refusal has the same effect as for the
        event itself.

        Raises StoreError.
        """
        repo = self._repo_of(event)
        if repo is None:
            return False
        request = request_of(event, repo.prefixes)
        decision = decide_request(repo.config, event, request)
        if not decision.allowed:
            await self._refuse(event, request, decision)
        return decision.allowed

    async def resume(self) -> int:
        """Dispatch what an earlier process committed and no worker has stored; returns how many."""
        pending: list[Entry] = await self._journal.pending()
        for entry in pending:
            self._dispatch(entry)
        return len(pending)

    def _is_awaited(self, repo: Repo, event: Event) -> bool:
        """Answering a card or typing into a program needs no mention."""
        if not isinstance(event, MessagePosted) or event.thread is None or not event.text.strip():
            return False
        return self._threads.awaits(repo, event.thread)

    def _repo_of(self, event: Event) -> Repo | None:
        repo = self._repos.get(event.channel)
        if repo is None and self._threads.direct is not None and event.is_direct:
            return self._threads.direct.repo_of(event)
        return repo

    async def _refuse(self, event: Event, request: Request, decision: Decision) -> None:
        """Record a refusal, once; a stranger is told once an hour."""
        if await self._journal.pass_over(event):
            tell = not decision.is_stranger or self._first_within_the_hour(event.user)
            self._refusals.refused(event, request, decision, tell=tell)

    def _first_within_the_hour(self, user: PersonRef) -> bool:
        now_s = self._clock.monotonic()
        self._noticed = {u: t for u, t in self._noticed.items() if now_s - t < NOTICE_INTERVAL_S}
        if user in self._noticed:
            return False
        self._noticed[user] = now_s
        return True


def dated(event: Event, now: datetime, away_until: datetime, max_age_hours: float) -> Event:
    """The event, marked late if it was written while we were away (before ``away_until``, or long before it
    reached us), and stale if that is longer ago than ``max_age_hours``, or if it may have been handled."""
    if not isinstance(event, MessagePosted) or event.origin != "chat":
        return event
    age_s = now.timestamp() - event.sent_at
    late = age_s > LATE_S or event.sent_at < away_until.timestamp()
    too_old = late and age_s > timedelta(hours=max_age_hours).total_seconds()
    return replace(event, late=late, stale=too_old or event.handled == "maybe")


def _not_for_us(config: Config, event: Event, request: Request) -> bool:
    """With ``agent.mention: mention`` a message without a mention is ignored; a command never is."""
    if isinstance(event, MessagePosted | MessageEdited) and isinstance(request, Prompt):
        if not request.text.strip() and not getattr(event, "files", ()):
            if isinstance(event, MessagePosted):
                # A mention without text is for us: the worker starts a session, or asks what to do.
                return not (request.prefix or event.mentioned)
            return not (request.prefix and is_session(config, request.prefix))
        if config.agent.mention == "mention" and request.prefix is None:
            return isinstance(event, MessagePosted) and event.origin == "chat" and not event.mentioned
    return isinstance(request, Command) and not request.name

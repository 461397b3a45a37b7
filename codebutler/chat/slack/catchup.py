"""Fetches messages missed while we were not connected, and passes them to the intake in order.

First, in every channel, the newest messages down to the last one received. Then older messages, page by page:
they show which of their threads have news. Last, edits and deletions. A gap is on disk before the first event
after it can be, so an interrupted catch-up is repeated.

After a short interruption, everything but the first step waits until Slack has stopped resending undelivered
events: then it is done once for all interruptions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from math import inf
from random import Random
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from codebutler.chat.port import History, Identity
from codebutler.chat.slack.history import PASSING, HistoryPages, PatientHistory
from codebutler.chat.slack.missed import (
    ShownMessage,
    Window,
    earlier,
    missed,
    old_root,
    threads,
    unsettled,
    window,
)
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, StoreError
from codebutler.domain.refs import ConversationRef, MessageRef
from codebutler.intake.dispatcher import Dispatcher
from codebutler.intake.intake import Intake
from codebutler.intake.journal import Journal
from codebutler.intake.records import Gap
from codebutler.intake.repos import Repo
from codebutler.platform.tasks import BoundedDict, cancel

AT_ONCE = 4
MAX_THREADS = 200
REMEMBERED = 10_000
# Order is worth a short wait, an answer is worth more.
HOLD_S = 2.0
# Slack resends an event for the last time after five minutes.
RETRIED_S = 360.0
# How long a message may still be on its way over the socket.
UNDER_WAY_S = 8.0

log = logging.getLogger("codebutler.chat.slack.catchup")


class Shelf(Struct, frozen=True, kw_only=True):
    """Where fetched messages go; ``dispatcher`` holds back what ``intake`` accepts."""

    intake: Intake
    journal: Journal
    dispatcher: Dispatcher


class _CatchUpRound(Struct, frozen=True):
    """The messages fetched of a channel so far, as far as they may still count; ``complete`` names the parts
    fetched completely. ``latest``: by first message, when its thread last got a message. ``losses``: how
    often the connection had been lost when it started."""

    gap: Gap
    frame: Window
    pages: HistoryPages
    losses: int
    fetched: list[ShownMessage] = field(default_factory=list)
    latest: dict[MessageRef, str] = field(default_factory=dict)
    complete: set[MessageRef | None] = field(default_factory=set)
    roots: set[MessageRef] = field(default_factory=set)
    """First messages of the threads that were read."""
    accepted: set[str] = field(default_factory=set)
    """Keys of the accepted events."""

    def add(self, part: list[ShownMessage]) -> None:
        """Add messages that were fetched."""
        self.latest.update({each.ts: each.latest_reply for each in part if each.latest_reply})
        self.fetched.extend(each for each in part if each.sent_at > self.frame.look_s)


class CatchUp:
    """Catches up all channels: call ``lost`` when events may be missed, ``back`` when they come again; ``run`` does the
    rest."""

    def __init__(
        self,
        reader: History,
        shelf: Shelf,
        clock: Clock,
        rng: Random,
        repos: Callable[[], Mapping[ConversationRef, Repo]],
    ) -> None:
        self._rng = rng
        self._history = PatientHistory(reader, clock, rng)
        self._shelf = shelf
        self._clock = clock
        self._repos = repos
        self._losses = 0
        # By channel: when to check all its threads, inf for never. Nobody knows what an earlier process
        # missed:
        # that is checked at once.
        self._due_s: dict[ConversationRef, float] = {}
        self._listening = False
        self._read: BoundedDict[tuple[ConversationRef, str], str] = BoundedDict(REMEMBERED)
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        self._alarm: set[asyncio.Task[None]] = set()
        self._wanted = asyncio.Event()
        self._working = False
        self._slots = asyncio.Semaphore(AT_ONCE)

    @property
    def is_busy(self) -> bool:
        """Is something still to be fetched?"""
        return self._working or self._wanted.is_set()

    def channels(self) -> tuple[ConversationRef, ...]:
        """The channels that are caught up."""
        return tuple(self._repos())

    def lost(self) -> None:
        """From now on events may be missed. Stored before any later event."""
        self._losses += 1
        self._listening = False
        due_s = self._clock.monotonic() + RETRIED_S
        self._due_s = {each: min(then_s, due_s) for each, then_s in self._due_s.items()}
        self._start(self._open_gaps(), "catch-up-gap", self._opening)

    def back(self) -> None:
        """Events come again: messages wait a moment for earlier ones."""
        self._listening = True
        for channel in self._repos():
            self._shelf.dispatcher.hold(channel)
        self._start(self._lose_patience(), "catch-up-patience", self._waiting)
        self._wanted.set()
        if all(task.done() for task in self._alarm):
            self._start(self._look_again(), "catch-up-threads", self._alarm)

    async def run(self, me: Identity) -> None:
        """Catch up whenever we are back; until cancelled."""
        try:
            while True:
                await self._wanted.wait()
                self._working = True
                self._wanted.clear()
                await asyncio.gather(*self._opening)
                await self._all(me)
                self._working = False
        finally:
            self._shelf.dispatcher.release_all()
            await cancel(self._opening | self._waiting | self._alarm)

    async def has_missed(self, channels: Sequence[ConversationRef], me: Identity) -> bool:
        """Does one of the channels show a message that should have come long ago? Messages that may still be
        on their way get time, by the monotonic clock. Raises ChatError, StoreError.

        A running catch-up has precedence: it gets all the calls that Slack allows.
        """
        if self.is_busy and len(self._repos()) > len(channels):
            return False
        absent = {channel: await self._absent(channel, me) for channel in channels}
        absent = {channel: found for channel, found in absent.items() if found}
        if not absent:
            return False
        await self._clock.sleep(UNDER_WAY_S)
        for channel, found in absent.items():
            if found - {each.ref for each in await self._shelf.journal.seen(channel)}:
                return True
        return False

    async def _absent(self, channel: ConversationRef, me: Identity) -> set[MessageRef]:
        """The ts of messages in the history that the journal does not know."""
        mark = await self._shelf.journal.high_water(channel)
        if not mark:
            return set()
        shown = {each.ts for each in await self._history.glance(channel, mark, me) if each.event}
        return shown - {each.ref for each in await self._shelf.journal.seen(channel, mark)}

    async def _open_gaps(self) -> None:
        failures = 0
        while True:
            try:
                await self._shelf.journal.open_gaps(self._repos(), self._clock.now())
                return
            except StoreError as error:
                failures += 1
                log.warning("cannot record that messages may have been missed: %s", error)
                await self._history.pause(failures)

    async def _all(self, me: Identity) -> None:
        """New messages first, in every channel: old threads and edits take many more calls, and few people
        wait for them. In random order, so that no channel is always last in an interrupted round."""
        rounds: dict[ConversationRef, _CatchUpRound] = {}
        channels = list(self._repos())
        self._rng.shuffle(channels)
        await asyncio.gather(*(self._one(each, partial(self._news, each, me, rounds)) for each in channels))
        now_s = self._clock.monotonic()
        found = [each for channel, each in rounds.items() if self._due_s.get(channel, -inf) <= now_s]
        for step in (self._older, self._changes):
            await asyncio.gather(*(self._one(each.gap.channel, partial(step, each, me)) for each in found))

    async def _look_again(self) -> None:
        """Start a catch-up whenever threads are due for a check."""
        while (wait_s := self._wait_s()) < inf:
            await self._clock.sleep(wait_s)
            if self._listening:  # else it is done when we are back
                self._wanted.set()

    def _wait_s(self) -> float:
        now_s = self._clock.monotonic()
        return min((due_s - now_s for due_s in self._due_s.values() if due_s > now_s), default=inf)

    async def _lose_patience(self) -> None:
        await self._clock.sleep(HOLD_S)
        self._shelf.dispatcher.release_all()

    def _start(self, work: Coroutine[Any, Any, None], name: str, group: set[asyncio.Task[None]]) -> None:
        task = asyncio.create_task(work, name=name)
        group.add(task)
        task.add_done_callback(group.discard)

    async def _one(self, channel: ConversationRef, work: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        async with self._slots:
            while True:
                try:
                    await work()
                    break
                except StoreError as error:
                    failures += 1
                    log.warning("catching up in %s is waiting for disk space: %s", self._name(channel), error)
                    await self._history.pause(failures)
                except ChatError as error:
                    log.warning("cannot catch up in %s: %s", self._name(channel), error)
                    break
                except Exception:  # one channel's surprise must not cost the others their catch-up
                    log.exception("catching up in %s failed", self._name(channel))
                    break
            self._shelf.dispatcher.release(channel)

    async def _news(
        self, channel: ConversationRef, me: Identity, rounds: dict[ConversationRef, _CatchUpRound]
    ) -> None:
        """Accept the messages since the last one received, and leave the rest in ``rounds``."""
        losses = self._losses
        now = self._clock.now()
        gap = await self._shelf.journal.gap(channel, old_root(now))
        if gap is None:
            return
        frame = window(gap, now)
        found = _CatchUpRound(gap, frame, self._history.pages(channel, frame.oldest_s, me), losses)
        near: list[ShownMessage] = []
        # Fetch everything before accepting any: in a channel that is one conversation the oldest comes first.
        while not found.pages.ended and not any(each.sent_at <= frame.near_s for each in near):
            near += await found.pages.more()
        await self._take(found, near, me)
        rounds[channel] = found

    async def _older(self, found: _CatchUpRound, me: Identity) -> None:
        """Accept the rest: mainly replies in threads that started before the gap. Then it is closed."""
        channel = found.gap.channel
        while not found.pages.ended:
            if self._wanted.is_set():
                return  # something may be missing since, which matters more; the gap stays
            await self._take(found, await found.pages.more(), me)
        if found.pages.cut_off:
            log.warning("%s: too many missed messages, reading only the latest", self._name(channel))
        else:
            found.complete.add(None)
        await self._accept(found)
        if found.losses == self._losses:
            # Otherwise something may have been missed since: the gap stays, and another round will follow.
            # The
            # rest is older than the gap, where the next round looks, too.
            await self._shelf.journal.close_gap(channel)
            self._due_s[channel] = inf

    async def _take(self, found: _CatchUpRound, part: list[ShownMessage], me: Identity) -> None:
        """Accept some messages of the channel and of their threads. No first message waits for other threads
        to be read, unless the whole channel is one conversation."""
        found.add(part)
        repo = self._repos().get(found.gap.channel)
        in_one = repo is not None and repo.config.agent.scope == "channel"
        if not in_one:
            firsts = [each for each in part if each.event is None or each.event.thread is None]
            await self._accept(replace(found, fetched=firsts, complete=set()))
        unread = self._unread(found, threads(found.gap, found.frame, part))
        for root in unread:
            replies = await self._replies(found, root, me) or []
            found.roots.add(root)
            found.add(replies)
            if not in_one:
                await self._accept(replace(found, fetched=replies, complete=set()))
        if in_one:
            await self._accept(replace(found, complete=set()))
        self._keep(found, unread)

    async def _changes(self, found: _CatchUpRound, me: Identity) -> None:
        """Accept replies that came before the gap and never reached us, then edits and deletions."""
        before = self._unread(found, earlier(found.gap, found.frame, found.latest))
        for root in [*before, *unsettled(found.gap, found.frame)[:MAX_THREADS]]:
            if self._wanted.is_set():
                return  # something may be missing since, which matters more
            if root not in found.complete:
                replies = await self._replies(found, root, me)
                await self._accept(
                    replace(found, fetched=replies or [], complete=found.complete.intersection((root,)))
                )
                self._keep(found, [root])

    def _unread(self, found: _CatchUpRound, roots: Sequence[MessageRef]) -> list[MessageRef]:
        """A gap may stay open for several rounds; a thread without news in the history is not read in each."""
        latest, channel = found.latest, found.gap.channel
        room = max(0, MAX_THREADS - len(found.roots))
        return [
            root
            for root in roots
            if root not in found.roots
            and (root not in latest or self._read.get((channel, root)) != latest[root])
        ][:room]

    def _keep(self, found: _CatchUpRound, roots: Sequence[MessageRef]) -> None:
        """The messages in these threads are on disk."""
        for root in roots:
            self._read[found.gap.channel, root] = found.latest.get(root, "")

    async def _accept(self, found: _CatchUpRound) -> None:
        outcomes = []
        for event in missed(found.gap, found.frame, found.fetched, found.complete):
            if event.key not in found.accepted:
                outcomes.append(await self._shelf.intake.accept(event, missed=True))
                found.accepted.add(event.key)
        if count := outcomes.count("accepted"):
            log.info("caught up %d message(s) in %s", count, self._name(found.gap.channel))

    async def _replies(
        self, found: _CatchUpRound, root: MessageRef, me: Identity
    ) -> list[ShownMessage] | None:
        """The thread's messages; None if Slack refuses."""
        channel = found.gap.channel
        try:
            replies, whole = await self._history.read(channel, root, found.frame.look_s, me)
        except PASSING:
            raise
        except ChatError as error:
            log.debug("a thread of %s cannot be read: %s", self._name(channel), error.code)
            return None
        if whole:
            found.complete.add(root)
        return replies

    def _name(self, channel: ConversationRef) -> str:
        repo = self._repos().get(channel)
        return f"{repo.name} ({channel})" if repo else channel

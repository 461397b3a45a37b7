"""Tells the channels concerned, once, that we are back: after an outage, a restart, a machine's sleep.

The notice is on disk before it is posted, under an operation ID that is looked up first: a supervisor that
dies in between neither forgets it nor posts it twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from uuid import uuid4

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codebutler.chat.delivery.sender import Sender
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, StoreError
from codebutler.domain.message import said
from codebutler.domain.model import Post
from codebutler.domain.refs import ConversationRef
from codebutler.intake.absence import Absence, ChatRetention, line, merged, with_interrupted
from codebutler.intake.journal import Journal
from codebutler.intake.records import Notes
from codebutler.platform.tasks import beside, cancel

ABSENCE, ALIVE = "absence", "alive"
# How often the last moment online is stored: after a crash, the start of an absence is known this exactly.
PULSE_S = 30.0
# Workers report interrupted turns right after their start.
SETTLE_S = 5.0
LOOK_S = 1.0
# How long to wait for catch-up; messages it finds later say themselves that they are late.
PATIENCE_S = 60.0

log = logging.getLogger("codebutler.chat.absence_notice")


class ToldChannels(Struct, frozen=True):
    """The channels that may be ``told``, and those in which a card is ``asking`` somebody."""

    told: Callable[[], Collection[ConversationRef]]
    asking: Callable[[], Collection[ConversationRef]] = tuple


class AbsenceNotice:
    """Announces absences: call ``lost`` when no connection delivers events any more, ``back`` when one does; ``run``
    does the rest.

    ``channels`` are those that may be told; ``is_busy``: missed messages are still being fetched, or a worker
    is still starting. ``notes``: where it is stored.
    """

    def __init__(
        self,
        sender: Sender,
        journal: Journal,
        clock: Clock,
        channels: ToldChannels,
        is_busy: Callable[[], bool],
        notes: Notes,
    ) -> None:
        self._sender = sender
        self._journal = journal
        self._notes = notes
        self._clock = clock
        self._channels = channels
        self._is_busy = is_busy
        self._alive_s: float | None = None
        self._away_since: datetime | None = None
        self._back_at: datetime | None = None
        self._interrupted: list[ConversationRef] = []
        self._absence: Absence | None = None
        self._remembered = ""
        self._listening = False
        # From the loss until its effects are known: a turn found interrupted in this time belongs to it.
        self._open = True
        self._back = asyncio.Event()

    def lost(self) -> None:
        """No connection delivers events, since the last heartbeat: that is long ago if the machine slept, but not if
        only the clock was set."""
        self._listening, self._open = False, True
        if self._away_since is None:
            silent_s = 0.0 if self._alive_s is None else self._clock.boottime() - self._alive_s
            self._away_since = self._clock.now() - timedelta(seconds=silent_s)

    def back(self) -> None:
        """A connection delivers events again."""
        self._listening = True
        self._back_at = self._clock.now()
        self._back.set()

    def interrupted(self, channel: ConversationRef) -> None:
        """A worker found that a turn of ``channel`` was interrupted when its process died."""
        if self._open:
            self._interrupted.append(channel)

    async def run(self) -> None:
        """Runs until cancelled. Before the first ``back`` it reads what an earlier supervisor left."""
        telling: set[asyncio.Task[None]] = set()
        try:
            await self._remember()
            async with beside(self._pulse(), name="absence-pulse"):
                while True:
                    await self._back.wait()
                    self._back.clear()
                    # Lost again during the announcement: it is one absence then.
                    await cancel(telling)
                    telling = {asyncio.create_task(self._tell_all(), name="absence-tell")}
        finally:
            await cancel(telling)
            await self._note_alive()

    async def _remember(self) -> None:
        try:
            alive, absence = await self._notes.note(ALIVE), await self._notes.note(ABSENCE)
            if alive:
                self._away_since = datetime.fromisoformat(alive)
            if absence:
                self._absence = msgspec.json.decode(absence, type=Absence)
                self._remembered = self._absence.id
        except (StoreError, ValueError, msgspec.DecodeError) as error:
            log.warning("unknown how long we were offline: %s", error)

    async def _pulse(self) -> None:
        while True:
            if self._listening:
                await self._note_alive()
            await self._clock.sleep(PULSE_S)

    async def _note_alive(self) -> None:
        if not self._listening:
            return
        self._alive_s = self._clock.boottime()
        try:
            await self._notes.keep_note(ALIVE, self._clock.now().isoformat())
        except StoreError as error:
            log.debug("the heartbeat could not be saved: %s", error)

    async def _tell_all(self) -> None:
        since, self._away_since = self._away_since, None
        now = self._back_at or self._clock.now()
        latest = Absence(id=uuid4().hex, spans=((min(since or now, now), now),))
        try:
            # Before waiting for anything: if we die now, the next supervisor announces it.
            await self._keep(merged(self._absence, latest))
            await self._note_alive()
            await self._settle()
            self._open = False
            absence = self._absence or latest
            for channel in self._interrupted:
                absence = with_interrupted(absence, channel)
            self._interrupted = []
            await self._keep(absence)
            for channel in self._channels.told():
                absence = await self._tell(absence, channel)
            await self._keep(replace(absence, done=True))
        except StoreError as error:
            log.warning("cannot announce that we are back: %s", error)

    async def _settle(self) -> None:
        """Wait until missed messages have been fetched, and the workers have checked their turns."""
        until_s = self._clock.monotonic() + PATIENCE_S
        while self._is_busy() and self._clock.monotonic() < until_s:
            await self._clock.sleep(LOOK_S)
        await self._clock.sleep(SETTLE_S)

    async def _tell(self, absence: Absence, channel: ConversationRef) -> Absence:
        arrivals = await self._journal.arrivals(channel, absence.since)
        newest_s = await self._journal.newest_before(channel, absence.since)
        limits = self._sender.limits
        presses = limits.presses_kept if channel in self._channels.asking() else None
        text = line(absence, channel, arrivals, newest_s, ChatRetention(limits.kept, presses))
        if not text:
            return absence
        try:
            # Only an earlier supervisor can have posted it before.
            unsure = absence.id == self._remembered
            await self._sender.submit(
                channel, f"back-{absence.id}-{channel}", Post(message=said(text)), unsure=unsure
            )
        except ChatError as error:
            log.warning("cannot tell %s that we are back: %s", channel, error)
        absence = replace(absence, told=(*absence.told, channel))
        await self._keep(absence)
        return absence

    async def _keep(self, absence: Absence) -> None:
        self._absence = absence
        await self._notes.keep_note(ABSENCE, msgspec.json.encode(absence).decode())

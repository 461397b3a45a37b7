"""Tells the channels concerned, once, that we are back: after an outage, a restart, a machine's sleep.

What is to be told is on disk before it is told, and posted under an operation ID that is looked up first: a
supervisor that dies in between neither forgets it nor says it twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from codebutler.chat.delivery.sender import Sender
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, StoreError
from codebutler.domain.message import said
from codebutler.domain.model import Post
from codebutler.intake.absence import Absence, line, merged, with_interrupted
from codebutler.intake.journal import Journal
from codebutler.intake.records import Notes
from codebutler.platform.tasks import beside, cancel

ABSENCE, ALIVE = "absence", "alive"
# How exactly the beginning of an absence is known after a crash.
PULSE_S = 30.0
# Workers tell what they found interrupted right after their start.
SETTLE_S = 5.0
LOOK_S = 1.0
# So long a catch-up is waited for; what it finds later is late all the same, and says so itself.
PATIENCE_S = 60.0

log = logging.getLogger("codebutler.chat.absence_notice")


class AbsenceNotice:
    """``lost`` when nobody listens any more, ``back`` when somebody does; ``run`` does the rest.

    ``channels`` are those that may be told; ``is_busy``: what was missed is still being fetched,
    or a worker is still starting. ``notes``: where it is kept, the journal's own if left out.
    """

    def __init__(
        self,
        sender: Sender,
        journal: Journal,
        clock: Clock,
        channels: Callable[[], Collection[str]],
        is_busy: Callable[[], bool],
        notes: Notes | None = None,
    ) -> None:
        self._sender = sender
        self._journal = journal
        self._notes = notes or journal
        self._clock = clock
        self._channels = channels
        self._is_busy = is_busy
        self._alive_s: float | None = None
        self._away_since: datetime | None = None
        self._back_at: datetime | None = None
        self._interrupted: list[str] = []
        self._absence: Absence | None = None
        self._remembered = ""
        self._listening = False
        # From the loss until it is known what it left: a turn that is found interrupted then is its work.
        self._open = True
        self._back = asyncio.Event()

    def lost(self) -> None:
        """Nobody listens: since the last sign of life, which is long ago if the machine slept, and not if
        somebody set the clock."""
        self._listening, self._open = False, True
        if self._away_since is None:
            silent_s = 0.0 if self._alive_s is None else self._clock.boottime() - self._alive_s
            self._away_since = self._clock.now() - timedelta(seconds=silent_s)

    def back(self) -> None:
        """Somebody listens again."""
        self._listening = True
        self._back_at = self._clock.now()
        self._back.set()

    def interrupted(self, channel: str) -> None:
        """A worker found a turn of ``channel`` that ran when its process died."""
        if self._open:
            self._interrupted.append(channel)

    async def run(self) -> None:
        """Until cancelled. Before the first ``back``, what an earlier life left is read."""
        telling: set[asyncio.Task[None]] = set()
        try:
            await self._remember()
            async with beside(self._pulse(), name="absence-pulse"):
                while True:
                    await self._back.wait()
                    self._back.clear()
                    # Lost again while it was being told: then it is one absence.
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
            log.debug("a sign of life could not be noted: %s", error)

    async def _tell_all(self) -> None:
        since, self._away_since = self._away_since, None
        now = self._back_at or self._clock.now()
        latest = Absence(id=uuid4().hex, spans=((min(since or now, now), now),))
        try:
            # Before anything is waited for: who dies now leaves it to the next life.
            await self._keep(merged(self._absence, latest))
            await self._note_alive()
            await self._settle()
            self._open = False
            absence = self._absence or latest
            for channel in self._interrupted:
                absence = with_interrupted(absence, channel)
            self._interrupted = []
            await self._keep(absence)
            for channel in self._channels():
                absence = await self._tell(absence, channel)
            await self._keep(replace(absence, done=True))
        except StoreError as error:
            log.warning("it cannot be told that we are back: %s", error)

    async def _settle(self) -> None:
        """Until what was missed has been fetched, and the workers have looked at what they left."""
        until_s = self._clock.monotonic() + PATIENCE_S
        while self._is_busy() and self._clock.monotonic() < until_s:
            await self._clock.sleep(LOOK_S)
        await self._clock.sleep(SETTLE_S)

    async def _tell(self, absence: Absence, channel: str) -> Absence:
        arrivals = await self._journal.arrivals(channel, absence.since)
        newest_s = await self._journal.newest_before(channel, absence.since)
        text = line(absence, channel, arrivals, newest_s, self._sender.kept)
        if not text:
            return absence
        try:
            # Only an earlier life can have said it before.
            unsure = absence.id == self._remembered
            await self._sender.submit(
                channel, f"back-{absence.id}-{channel}", Post(message=said(text)), unsure=unsure
            )
        except ChatError as error:
            log.warning("%s could not be told that we are back: %s", channel, error)
        absence = replace(absence, told=(*absence.told, channel))
        await self._keep(absence)
        return absence

    async def _keep(self, absence: Absence) -> None:
        self._absence = absence
        await self._notes.keep_note(ABSENCE, msgspec.json.encode(absence).decode())

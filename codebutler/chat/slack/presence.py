"""Whether we are really there: notices what no ping can, that the machine slept, and that a living connection brings
nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from codebutler.chat.delivery.sender import Sender
from codebutler.chat.slack.socket import SocketStatus
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, ChatUnreachableError, CodeButlerError
from codebutler.domain.message import Message
from codebutler.domain.model import Post, Update
from codebutler.intake.journal import Journal

TICK_S = 5.0
# The wall clock went another way than the monotonic one: a suspend, or somebody set the clock. Either way, look.
JUMP_S = 30.0
# Without an event for so long, Slack is asked whether there should have been one.
QUIET_S = 15.0
# So many channels at a time, in turn: history may be read 50 times a minute, by others too.
PER_ROUND = 6
# An event of our own making comes back within a second or so. Quiet, a tick and this stay below 30 s.
BEAT_S = 8.0
BEAT_LOOK_S = 0.5
# A connection that is replaced for being deaf is given this long before the next one is.
AGAIN_S = 120.0
# So many calls without an echo, and never one with: Slack does not send our own events here.
HOPELESS = 2

NOTE = "echo"
# Longer than that proves nothing about the socket: the Web API is slow, or we may not call it now.
CALL_S = 5.0
EXPLANATION = (
    "👂 When it is quiet I edit this message, to check that Slack still sends me what you write. "
    "Nobody is notified."
)

log = logging.getLogger("codebutler.chat.slack.presence")


@dataclass(frozen=True, slots=True)
class Checks:
    """How to find out whether we hear: ``status`` tells when something came last, ``has_missed`` asks Slack's history
    about some channels, ``beat`` makes Slack send us an event; the latter two raise CodeButlerError when they cannot be
    used. ``rebuild`` replaces the connection from zero."""

    status: Callable[[], SocketStatus]
    rebuild: Callable[[], None]
    has_missed: Callable[[Sequence[str]], Awaitable[bool]]
    beat: Callable[[], Awaitable[None]]


class Presence:
    """Asks history about all ``channels``, some at a time; where they are too many for one round, an event of
    our own making proves within the same time that anything comes at all."""

    def __init__(self, channels: Callable[[], Sequence[str]], checks: Checks, clock: Clock) -> None:
        self._channels = channels
        self._checks = checks
        self._clock = clock
        self._turn = 0
        self._quiet_s = 0.0
        self._not_before_s = 0.0
        self._heard = 0
        self._silences = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        then, then_s = self._clock.now(), self._clock.monotonic()
        while True:
            await self._clock.sleep(TICK_S)
            now, now_s = self._clock.now(), self._clock.monotonic()
            jump_s = (now - then).total_seconds() - (now_s - then_s)
            passed_s, then, then_s = now_s - then_s, now, now_s
            if abs(jump_s) > JUMP_S:
                log.warning("the clock jumped by %+.0f s (sleep?): connecting anew", jump_s)
                self._checks.rebuild()
            else:
                await self._listen(passed_s)

    async def _listen(self, passed_s: float) -> None:
        self._quiet_s += passed_s
        status = self._checks.status()
        age_s = status.last_event_age_s
        if status.state != "connected" or age_s is None or min(age_s, self._quiet_s) < QUIET_S:
            return
        self._quiet_s = 0.0
        if self._clock.monotonic() >= self._not_before_s and await self._is_deaf():
            self._not_before_s = self._clock.monotonic() + AGAIN_S
            self._checks.rebuild()

    async def _is_deaf(self) -> bool:
        channels = self._channels()
        if len(channels) > PER_ROUND and await self._is_silent():
            log.warning("an event of our own did not come over the connection: connecting anew")
            return True
        some = [channels[(self._turn + place) % len(channels)] for place in range(len(channels))][:PER_ROUND]
        self._turn += len(some)
        try:
            if not some or not await self._checks.has_missed(some):
                return False
        except CodeButlerError as error:
            log.debug("the connection cannot be checked: %s", error)
            return False
        log.warning("Slack has messages that never came over the connection: connecting anew")
        return True

    async def _is_silent(self) -> bool:
        """Does an event of our own fail to come? Any other event proves as much as ours."""
        if self._silences >= HOPELESS and not self._heard:
            return False
        called_s = self._clock.monotonic()
        try:
            await self._checks.beat()
        except CodeButlerError as error:
            log.debug("no event of our own could be caused: %s", error)
            return False
        until_s = self._clock.monotonic() + BEAT_S
        while not (heard := self._heard_since(called_s)) and self._clock.monotonic() < until_s:
            await self._clock.sleep(BEAT_LOOK_S)
        if heard or self._checks.status().state != "connected":
            self._heard += heard
            return False
        self._silences += 1
        if self._silences == HOPELESS and not self._heard:
            log.warning("Slack does not send us events of our own: a deaf connection may be noticed late")
        return True

    def _heard_since(self, moment_s: float) -> bool:
        age_s = self._checks.status().last_event_age_s
        return age_s is not None and self._clock.monotonic() - age_s >= moment_s


class EchoProbe:
    """Causes an event that Slack has to send us: by editing a message of our own, which notifies nobody. It is one in
    one of ``channels`` (there is at least one), posted when it is first needed and kept for good.

    Slack: chat.update comes back as ``message_changed``, to the one who called it too; a message with blocks that keep
    their content shows no mark of being edited.
    """

    def __init__(
        self, sender: Sender, journal: Journal, channels: Callable[[], Sequence[str]], clock: Clock
    ) -> None:
        self._sender = sender
        self._journal = journal
        self._channels = channels
        self._clock = clock
        self._renewed = False
        self._tried = 0

    async def beat(self) -> None:
        """Have Slack send an event. Raises ChatError or StoreError if it cannot be had now."""
        try:
            async with asyncio.timeout(CALL_S):
                await self._edit()
        except TimeoutError:
            raise ChatUnreachableError("Slack takes its time", "timeout") from None

    async def _edit(self) -> None:
        channels = self._channels()
        channel, _, ts = (await self._journal.note(NOTE)).partition(" ")
        if channel not in channels:
            await self._post(channels[self._tried % len(channels)])
            return
        message = Message(markdown=EXPLANATION, summary=f"{EXPLANATION} ({self._clock.now():%H:%M:%S})")
        try:
            await self._sender.submit(channel, f"echo-edit-{channel}", Update(target_ts=ts, message=message))
        except ChatUnreachableError:
            raise
        except ChatError:
            # Somebody deleted it, say. Once more is enough: who deletes it again does not want it.
            if self._renewed:
                raise
            self._renewed = True
            await self._post(channel)

    async def _post(self, channel: str) -> None:
        # The same operation wherever it was cut off: it is looked for before it is done again.
        post = Post(message=Message(markdown=EXPLANATION, summary=EXPLANATION))
        op_id = f"echo-{channel}-again" if self._renewed else f"echo-{channel}"
        try:
            ts = await self._sender.submit(channel, op_id, post, unsure=True)
        except ChatUnreachableError:
            raise
        except ChatError:
            # We may have been removed from that channel: the next one next time.
            self._tried += 1
            raise
        await self._journal.keep_note(NOTE, f"{channel} {ts}")

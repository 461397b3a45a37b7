"""Tests for a dead connection beyond pings: the machine slept, or a live connection delivers nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from codebutler.chat.delivery.sender import Sender
from codebutler.chat.slack.socket import SocketStatus
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, ChatUnreachableError, CodeButlerError
from codebutler.domain.message import Message
from codebutler.domain.model import Post, Update
from codebutler.domain.refs import ConversationRef, MessageRef
from codebutler.intake.journal import Journal

TICK_S = 5.0
# The wall clock moved differently from the monotonic one: a suspend, or somebody set the clock. Check either
# way.
JUMP_S = 30.0
# After this long without an event, check Slack's history for missed ones.
QUIET_S = 15.0
# How many channels at a time, in turn: history may be read 50 times a minute, by others too.
PER_ROUND = 6
# A test event comes back within about a second. Quiet, a tick and this stay below 30 s.
BEAT_S = 8.0
BEAT_LOOK_S = 0.5
# After a dead connection was replaced, the next replacement waits this long.
AGAIN_S = 120.0
# After this many calls without an echo, and none with one, Slack does not send us our own events.
HOPELESS = 2

NOTE = "echo"
# A longer call proves nothing about the socket: the Web API is slow, or we may not call it now.
CALL_S = 5.0
EXPLANATION = (
    "👂 When it is quiet, I edit this message to check that Slack still sends me your messages. "
    "Nobody is notified."
)

log = logging.getLogger("codebutler.chat.slack.presence")


class Presence:
    """Checks the history of all ``channels``, some at a time; if they are too many for one round, a test
    event proves within the same time that events arrive at all.

    ``status`` says when something last arrived, ``has_missed`` checks Slack's history of some channels, ``beat``
    makes Slack send us an event; the latter two raise CodeButlerError if they cannot be used. ``rebuild``
    replaces the connection.
    """

    def __init__(
        self,
        channels: Callable[[], Sequence[ConversationRef]],
        status: Callable[[], SocketStatus],
        rebuild: Callable[[], None],
        has_missed: Callable[[Sequence[ConversationRef]], Awaitable[bool]],
        beat: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._channels = channels
        self._status = status
        self._rebuild = rebuild
        self._has_missed = has_missed
        self._beat = beat
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
                log.warning("the clock jumped by %+.0f s (sleep?): reconnecting", jump_s)
                self._rebuild()
            else:
                await self._listen(passed_s)

    async def _listen(self, passed_s: float) -> None:
        self._quiet_s += passed_s
        status = self._status()
        age_s = status.last_event_age_s
        if status.state != "connected" or age_s is None or min(age_s, self._quiet_s) < QUIET_S:
            return
        self._quiet_s = 0.0
        if self._clock.monotonic() >= self._not_before_s and await self._is_deaf():
            self._not_before_s = self._clock.monotonic() + AGAIN_S
            self._rebuild()

    async def _is_deaf(self) -> bool:
        channels = self._channels()
        if len(channels) > PER_ROUND and await self._is_silent():
            log.warning("our test event did not arrive: reconnecting")
            return True
        some = [channels[(self._turn + place) % len(channels)] for place in range(len(channels))][:PER_ROUND]
        self._turn += len(some)
        try:
            if not some or not await self._has_missed(some):
                return False
        except CodeButlerError as error:
            log.debug("the connection cannot be checked: %s", error)
            return False
        log.warning("Slack has messages that never arrived: reconnecting")
        return True

    async def _is_silent(self) -> bool:
        """Does a test event fail to arrive? Any other event proves as much."""
        if self._silences >= HOPELESS and not self._heard:
            return False
        called_s = self._clock.monotonic()
        try:
            await self._beat()
        except CodeButlerError as error:
            log.debug("cannot trigger a test event: %s", error)
            return False
        until_s = self._clock.monotonic() + BEAT_S
        while not (heard := self._heard_since(called_s)) and self._clock.monotonic() < until_s:
            await self._clock.sleep(BEAT_LOOK_S)
        if heard or self._status().state != "connected":
            self._heard += heard
            return False
        self._silences += 1
        if self._silences == HOPELESS and not self._heard:
            log.warning(
                "Slack does not send us our own events: a dead connection may go unnoticed for a while"
            )
        return True

    def _heard_since(self, moment_s: float) -> bool:
        age_s = self._status().last_event_age_s
        return age_s is not None and self._clock.monotonic() - age_s >= moment_s


class EchoProbe:
    """Makes Slack send us an event: by editing a message of our own, which notifies nobody. It is posted in
    one of ``channels`` (there is at least one) when first needed, and kept for good.

    Slack: chat.update comes back as ``message_changed``, to its caller too; a message with blocks that keep
    their content is not marked as edited.
    """

    def __init__(
        self,
        sender: Sender,
        journal: Journal,
        channels: Callable[[], Sequence[ConversationRef]],
        clock: Clock,
    ) -> None:
        self._sender = sender
        self._journal = journal
        self._channels = channels
        self._clock = clock
        self._renewed = False
        self._tried = 0

    async def beat(self) -> None:
        """Make Slack send an event. Raises ChatError or StoreError if that is impossible now."""
        try:
            async with asyncio.timeout(CALL_S):
                await self._edit()
        except TimeoutError:
            raise ChatUnreachableError("Slack did not answer in time", "timeout") from None

    async def _edit(self) -> None:
        channels = self._channels()
        kept, _, ts = (await self._journal.note(NOTE)).partition(" ")
        channel = ConversationRef(kept)
        if channel not in channels:
            await self._post(channels[self._tried % len(channels)])
            return
        message = Message(markdown=EXPLANATION, summary=f"{EXPLANATION} ({self._clock.now():%H:%M:%S})")
        try:
            await self._sender.submit(
                channel, f"echo-edit-{channel}", Update(target=MessageRef(ts), message=message)
            )
        except ChatUnreachableError:
            raise
        except ChatError:
            # Somebody deleted it, say. Post it once more; if it is deleted again, it is not wanted.
            if self._renewed:
                raise
            self._renewed = True
            await self._post(channel)

    async def _post(self, channel: ConversationRef) -> None:
        # The same operation after any interruption: it is looked up before it is repeated.
        post = Post(message=Message(markdown=EXPLANATION, summary=EXPLANATION))
        op_id = f"echo-{channel}-again" if self._renewed else f"echo-{channel}"
        try:
            ts = await self._sender.submit(channel, op_id, post, unsure=True)
        except ChatUnreachableError:
            raise
        except ChatError:
            # We may have been removed from that channel: use the next one next time.
            self._tried += 1
            raise
        await self._journal.keep_note(NOTE, f"{channel} {ts}")

"""Causes an event that Slack has to send us: by editing a message of our own, which notifies nobody.

Slack: chat.update comes back as ``message_changed``, to the one who called it too; a message with blocks that
keep their content shows no mark of being edited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from codebutler.clock import Clock
from codebutler.delivery.sender import Sender
from codebutler.errors import ChatError, ChatUnreachableError
from codebutler.intake.journal import Journal
from codebutler.model import Post, Update

NOTE = "echo"
# Longer than that proves nothing about the socket: the Web API is slow, or we may not call it now.
CALL_S = 5.0
EXPLANATION = (
    "👂 I edit this line when it is quiet, to hear whether Slack still sends me what you write. "
    "It notifies nobody."
)
BLOCKS = ({"type": "context", "elements": [{"type": "mrkdwn", "text": EXPLANATION}]},)


class Echo:
    """One message in one of ``channels`` (there is at least one), posted when it is first needed and kept for good."""

    def __init__(
        self, sender: Sender, journal: Journal, channels: Callable[[], Sequence[str]], clock: Clock
    ) -> None:
        self._sender = sender
        self._journal = journal
        self._channels = channels
        self._clock = clock
        self._renewed = False
        self._tried = 0

    async def call(self) -> None:
        """Have Slack send an event. Raises ChatError or StoreError if it cannot be had now."""
        try:
            async with asyncio.timeout(CALL_S):
                await self._call()
        except TimeoutError:
            raise ChatUnreachableError("Slack takes its time", "timeout") from None

    async def _call(self) -> None:
        channels = self._channels()
        channel, _, ts = (await self._journal.note(NOTE)).partition(" ")
        if channel not in channels:
            await self._post(channels[self._tried % len(channels)])
            return
        text = f"{EXPLANATION} ({self._clock.now():%H:%M:%S})"
        try:
            await self._sender.submit(
                channel, f"echo-edit-{channel}", Update(target_ts=ts, text=text, blocks=BLOCKS)
            )
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
        post = Post(text=EXPLANATION, blocks=BLOCKS)
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

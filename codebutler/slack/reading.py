"""Reading what is in a channel, within the limits, and finding there what we may have said before."""

from __future__ import annotations

from functools import partial

from codebutler.clock import Clock
from codebutler.errors import ChatRateLimitedError
from codebutler.model import Post
from codebutler.slack.gate import Gate
from codebutler.slack.lookup import LOOK_BACK_S, find_result
from codebutler.slack.port import ChatPort, Page


class Reader:
    """Pages of history, one call at a time as the limits allow."""

    def __init__(self, chat: ChatPort, gate: Gate, clock: Clock) -> None:
        self._chat = chat
        self._gate = gate
        self._clock = clock

    async def page(
        self, channel: str, *, thread_ts: str | None = None, oldest: str = "", cursor: str = ""
    ) -> Page:
        """A page of messages, as in the port. Raises ChatError as the port."""
        method = "conversations.history" if thread_ts is None else "conversations.replies"
        await self._gate.promised(method, channel)
        try:
            return await self._chat.history(channel, thread_ts=thread_ts, oldest=oldest, cursor=cursor)
        except ChatRateLimitedError as error:
            self._gate.pause(method, channel, error.retry_after_s)
            raise

    async def find(self, channel: str, op_id: str, operation: Post) -> str | None:
        """What an earlier attempt at ``operation`` made, None if there is nothing. Raises ChatError."""
        bot_id = (await self._gate.authority.me()).bot_id
        oldest = f"{self._clock.now().timestamp() - LOOK_BACK_S:.6f}" if operation.thread_ts is None else ""
        read = partial(self._at, channel, operation.thread_ts, oldest)
        return await find_result(read, op_id, bot_id)

    async def _at(self, channel: str, thread_ts: str | None, oldest: str, cursor: str) -> Page:
        return await self.page(channel, thread_ts=thread_ts, oldest=oldest, cursor=cursor)

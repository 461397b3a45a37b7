"""Reading what is in a channel, within the limits, and finding there what we may have said before."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from codebutler.clock import Clock
from codebutler.errors import ChatRateLimitedError
from codebutler.model import Post
from codebutler.slack.gate import Gate
from codebutler.slack.lookup import LOOK_BACK_S, find_result
from codebutler.slack.port import ChatPort, Page


class Reader:
    """Pages of history, one call at a time as the limits allow.

    What ``find`` has read of a conversation answers for all that was sent there before, until ``forget``.
    """

    def __init__(self, chat: ChatPort, gate: Gate, clock: Clock) -> None:
        self._chat = chat
        self._gate = gate
        self._clock = clock
        self._found: dict[str, dict[tuple[str | None, str], Page]] = {}

    async def page(
        self,
        channel: str,
        *,
        thread_ts: str | None = None,
        oldest: str = "",
        cursor: str = "",
        rank: int | None = None,
    ) -> Page:
        """A page of messages, as in the port; with a ``rank`` it can wait, see Gate.spared. Raises ChatError as
        the port."""
        method = "conversations.history" if thread_ts is None else "conversations.replies"
        if rank is None:
            await self._gate.promised(method, channel)
        else:
            await self._gate.spared(method, channel, rank)
        try:
            return await self._chat.history(channel, thread_ts=thread_ts, oldest=oldest, cursor=cursor)
        except ChatRateLimitedError as error:
            self._gate.pause(method, channel, error.retry_after_s)
            raise

    async def find(self, channel: str, op_id: str, operation: Post) -> str | None:
        """What an earlier attempt at ``operation`` made, None if there is nothing. Raises ChatError."""
        bot_id = (await self._gate.authority.me()).bot_id
        oldest = f"{self._clock.now().timestamp() - LOOK_BACK_S:.6f}" if operation.thread_ts is None else ""
        read = partial(self._once, channel, operation.thread_ts, oldest)
        return await find_result(read, op_id, bot_id)

    def forget(self, channel: str) -> None:
        """Something may have been sent there since it was read, or nobody asks any more."""
        self._found.pop(channel, None)

    async def _once(self, channel: str, thread_ts: str | None, oldest: str, cursor: str) -> Page:
        found = self._found.setdefault(channel, {})
        if (page := found.get((thread_ts, cursor))) is None:
            whole = await self.page(channel, thread_ts=thread_ts, oldest=oldest, cursor=cursor)
            # Only our own operations bear metadata that we look for.
            ours = tuple(each for each in whole.messages if each.get("metadata"))
            page = found[thread_ts, cursor] = replace(whole, messages=ours)
        return page


class Background:
    """History for what can wait: first pages go before later ones, and everything else before both."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def history(
        self, channel: str, *, thread_ts: str | None = None, oldest: str = "", cursor: str = ""
    ) -> Page:
        """See History."""
        rank = 1 if cursor else 0
        return await self._reader.page(channel, thread_ts=thread_ts, oldest=oldest, cursor=cursor, rank=rank)

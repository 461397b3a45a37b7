"""Reading what is in a channel, within the limits."""

from __future__ import annotations

from codebutler.chat.delivery.loop import Loop
from codebutler.chat.port import Call, ChatPort, Page
from codebutler.errors import ChatRateLimitedError
from codebutler.model import Value


class Reader:
    """Pages of history, each when what is dearer leaves room for it."""

    def __init__(self, chat: ChatPort, loop: Loop) -> None:
        self._chat = chat
        self._loop = loop

    async def page(
        self,
        channel: str,
        *,
        thread_ts: str | None = None,
        since_s: float = 0.0,
        cursor: str = "",
        value: Value = "notice",
        is_claimed: bool = False,
    ) -> Page:
        """A page of messages, as in the port. ``is_claimed``: the limits allow it already. Raises ChatError as the
        port."""
        call: Call = "history" if thread_ts is None else "replies"
        if not is_claimed:
            await self._loop.claim(call, channel, value, needs_token=False)
        try:
            return await self._chat.history(channel, thread_ts=thread_ts, since_s=since_s, cursor=cursor)
        except ChatRateLimitedError as error:
            self._loop.pause(call, channel, error.retry_after_s)
            raise


class Background:
    """History for what can wait: first pages go before later ones, and everything else before both."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def history(
        self, channel: str, *, thread_ts: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> Page:
        """See History."""
        value: Value = "sign" if cursor else "progress"
        return await self._reader.page(
            channel, thread_ts=thread_ts, since_s=since_s, cursor=cursor, value=value
        )

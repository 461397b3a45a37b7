"""Did it happen? Looks for operations of ours in a conversation before they are done a second time: one reading for all
of them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from codebutler.chat.delivery.authority import Authority
from codebutler.chat.delivery.reading import Reader
from codebutler.chat.port import Page
from codebutler.chat.slack.metadata import op_id_of
from codebutler.clock import Clock
from codebutler.errors import ChatError

# How far back a message can be whose answer we lost. In a thread all of it is read.
LOOK_BACK_S = 7 * 24 * 3600.0
MAX_PAGES = 50

log = logging.getLogger("codebutler.chat.delivery")


class Lookup:
    """Its first page is claimed by who asks."""

    def __init__(self, reader: Reader, authority: Authority, clock: Clock) -> None:
        self._reader = reader
        self._authority = authority
        self._clock = clock

    async def find(self, channel: str, thread_ts: str | None, op_ids: Collection[str]) -> dict[str, str]:
        """The ts of the message that each operation made; nothing for those that made none.

        Raises ChatError when the chat cannot be asked now; where it refuses to tell, nothing is found.
        """
        since_s = self._clock.now().timestamp() - LOOK_BACK_S if thread_ts is None else 0.0
        found: dict[str, str] = {}
        cursor = ""
        try:
            bot_id = (await self._authority.me()).bot_id
            for _ in range(MAX_PAGES):
                page = await self._reader.page(
                    channel,
                    thread_ts=thread_ts,
                    since_s=since_s,
                    cursor=cursor,
                    value="answer",
                    is_claimed=not cursor,
                )
                found = _made(page, op_ids, bot_id) | found
                if len(found) == len(op_ids) or not (cursor := page.next_cursor):
                    break
        except ChatError as error:
            if type(error) is not ChatError:
                raise
            log.warning("cannot look for earlier attempts in %s: %s", channel, error.code)
        return found


def _made(page: Page, op_ids: Collection[str], bot_id: str) -> dict[str, str]:
    messages = [message for message in page.messages if _is_ours(message, bot_id)]
    made = [(op_id_of(message), message.get("ts")) for message in messages]
    return {op_id: ts for op_id, ts in made if op_id in op_ids and op_id and isinstance(ts, str)}


def _is_ours(message: Mapping[str, Any], bot_id: str) -> bool:
    """Anybody with a token can write metadata; only our own message is the answer to our own call."""
    return not bot_id or message.get("bot_id") == bot_id

"""Did it happen? Looks for an operation of ours in the channel before it is done a second time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from codebutler.slack.metadata import op_id_of
from codebutler.slack.port import Page

# How far back a message can be whose answer we lost. In a thread all of it is read.
LOOK_BACK_S = 7 * 24 * 3600.0
MAX_PAGES = 50

ReadPage = Callable[[str], Awaitable[Page]]


async def find_result(read: ReadPage, op_id: str, bot_id: str) -> str | None:
    """The ts of the message that the operation made, None if there is none.

    ``read`` gives the page at a cursor; what it raises passes through.
    """
    cursor = ""
    for _page in range(MAX_PAGES):
        page = await read(cursor)
        for message in page.messages:
            if (result := _result_in(message, op_id, bot_id)) is not None:
                return result
        if not (cursor := page.next_cursor):
            return None
    return None


def _result_in(message: Mapping[str, Any], op_id: str, bot_id: str) -> str | None:
    ts = message.get("ts")
    # Anybody with a token can write metadata; only our own message is the answer to our own call.
    ours = not bot_id or message.get("bot_id") == bot_id
    return ts if ours and op_id_of(message) == op_id and isinstance(ts, str) else None

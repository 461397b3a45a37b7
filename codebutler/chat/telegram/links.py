"""A link with a code that somebody opens in Telegram: it identifies the user, or the group they choose. It consumes
no messages."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from codebutler.chat.people import readable
from codebutler.chat.telegram.api import BotApi
from codebutler.domain.errors import ChatError

# Longer than Telegram delays a repeated request.
LOOK_S = 3.1
WAIT_S = 20
PATIENCE_S = 600.0
_START = re.compile(r"/start(?:@\w+)?")


@dataclass(frozen=True)
class LinkOpened:
    """``user`` opened the link in ``chat``, both by ID; ``who`` and ``title`` are their names."""

    user: int
    who: str
    chat: int
    title: str


async def link_opened(
    api: BotApi, code: str, tell: Callable[[str], None], *, in_group: bool = False
) -> LinkOpened:
    """Whoever sends ``/start CODE`` within ten minutes, in private or in a group; after that, or if another process
    receives the messages, waits forever. Messages are not confirmed, so the supervisor still gets them all."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for update in await api.call("getUpdates", timeout_s=WAIT_S + 15, timeout=WAIT_S):
                    if (opened := _opened(update, code, in_group=in_group)) is not None:
                        return opened
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        tell("   (The link is no longer valid: enter a number, or run this again.)")
    except ChatError as error:
        tell(f"   (The link cannot be followed now: {error})")
        if in_group:
            tell("   While a supervisor runs, write in the group: the bot answers with the command to run.")
    never: asyncio.Future[LinkOpened] = asyncio.get_running_loop().create_future()
    return await never


def _opened(update: Mapping[str, Any], code: str, *, in_group: bool) -> LinkOpened | None:
    message = update.get("message") or {}
    sender, chat = message.get("from") or {}, message.get("chat") or {}
    start, *rest = str(message.get("text", "")).split() or [""]
    if not _START.fullmatch(start) or not secrets.compare_digest(" ".join(rest).encode(), code.encode()):
        return None
    if not isinstance(sender.get("id"), int) or not isinstance(chat.get("id"), int) or sender.get("is_bot"):
        return None
    if (chat.get("type") == "private") is in_group:
        return None
    return LinkOpened(
        user=sender["id"],
        who=readable(str(sender.get("first_name", ""))) or "somebody",
        chat=chat["id"],
        title=readable(str(chat.get("title", ""))) or "a group",
    )

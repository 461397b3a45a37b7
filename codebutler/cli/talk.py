"""Talking to the running supervisor: one request, its replies. Shared by status, stop, send and chat."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import aclosing

from codebutler.config.paths import Home
from codebutler.control.messages import ControlReply, ControlRequest, Done, Failed
from codebutler.control.wire import ask
from codebutler.domain.errors import CodeButlerError


def talk(request: ControlRequest, on_reply: Callable[[ControlReply], None]) -> Done:
    """Send ``request`` and hand every reply on; returns the last word.

    Raises NotRunningError where no supervisor runs, CodeButlerError with its line where it refuses.
    """
    return asyncio.run(_talk(request, on_reply))


async def _talk(request: ControlRequest, on_reply: Callable[[ControlReply], None]) -> Done:
    home = Home.from_env(os.environ)
    async with aclosing(ask(home.socket, request)) as replies:
        async for reply in replies:
            if isinstance(reply, Failed):
                raise CodeButlerError(reply.text)
            if isinstance(reply, Done):
                return reply
            on_reply(reply)
    raise CodeButlerError("the supervisor ended while it was working on this: see `codebutler status`")

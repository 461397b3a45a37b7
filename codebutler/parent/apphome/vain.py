"""Tells somebody that their button stands for nothing any more: where they pressed it, and nobody else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import uuid4

from codebutler.chat.delivery.sender import Sender
from codebutler.chat.slack.forms import PressedInVain
from codebutler.domain.errors import ChatError
from codebutler.domain.message import said
from codebutler.domain.model import Post
from codebutler.platform.tasks import Tasks

NOT_SERVED = "⚠️ This repository is not served any more: nothing was decided."

log = logging.getLogger("codebutler.parent.apphome")


class Vain:
    """``pressed`` returns at once; what cannot be said is logged. ``at_home`` shows it to a user in App Home."""

    def __init__(self, at_home: Callable[[str], None], sender: Sender, tasks: Tasks) -> None:
        self._at_home = at_home
        self._sender = sender
        self._tasks = tasks

    def pressed(self, press: PressedInVain) -> None:
        """Nobody took the press."""
        if press.at_home:
            self._at_home(press.user)
        else:
            self._tasks.start(self._whisper(press), name=f"a word to {press.user}")

    async def _whisper(self, press: PressedInVain) -> None:
        post = Post(message=said(NOT_SERVED), thread_ts=press.thread_ts, only_for=press.user)
        try:
            await self._sender.submit(press.channel, uuid4().hex, post)
        except ChatError as error:
            log.info("%s could not be told that their press was for nothing: %s", press.user, error)

"""Tells somebody that their button stands for nothing any more: where they pressed it, and nobody else."""

from __future__ import annotations

import logging
from typing import Protocol
from uuid import uuid4

from codebutler.errors import ChatError
from codebutler.model import Post
from codebutler.process.tasks import Tasks
from codebutler.slack.interactive import PressedInVain

NOT_SERVED = "⚠️ This repository is not served any more: nothing was decided."

log = logging.getLogger("codebutler.apphome")


class Homes(Protocol):
    """App Home."""

    def vain(self, user: str) -> None:
        """The user pressed something in their home that stands for nothing: show them that. Returns at once."""


class Mouth(Protocol):
    """The sender."""

    async def submit(self, channel: str, op_id: str, operation: Post, *, unsure: bool = False) -> str:
        """Do ``operation`` once, however often ``op_id`` is tried; the message's ts. Raises ChatError."""


class Vain:
    """``pressed`` returns at once; what cannot be said is logged."""

    def __init__(self, homes: Homes, mouth: Mouth, tasks: Tasks) -> None:
        self._homes = homes
        self._mouth = mouth
        self._tasks = tasks

    def pressed(self, press: PressedInVain) -> None:
        """Nobody took the press."""
        if press.at_home:
            self._homes.vain(press.user)
        else:
            self._tasks.start(self._whisper(press), name=f"a word to {press.user}")

    async def _whisper(self, press: PressedInVain) -> None:
        post = Post(text=NOT_SERVED, thread_ts=press.thread_ts, only_for=press.user)
        try:
            await self._mouth.submit(press.channel, uuid4().hex, post)
        except ChatError as error:
            log.info("%s could not be told that their press was for nothing: %s", press.user, error)

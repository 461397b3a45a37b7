"""Reports progress to the chat while the command line's work is done for somebody."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar
from uuid import uuid4

from codebutler.chat.chats import Chats
from codebutler.chat.platform import Prompter
from codebutler.domain.errors import ChatError
from codebutler.domain.message import said
from codebutler.domain.model import Post, Update
from codebutler.domain.refs import NOWHERE
from codebutler.schedule.commands import Asker
from codebutler.schedule.scheduler import Publish
from codebutler.text.markup import code

T = TypeVar("T")


class UnattendedPrompter(Prompter):
    """A terminal without a person; warnings are kept for the reply."""

    is_interactive = False

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def tell(self, line: str) -> None:
        """The reply says it."""

    def warn(self, line: str) -> None:
        """Keep it for the reply."""
        self.warnings.append(line)

    async def ask(self, question: str, default: str = "") -> str:
        """There is nobody to ask."""
        raise EOFError(question, default)

    async def ask_secret(self, question: str) -> str:
        """There is nobody to ask."""
        raise EOFError(question)

    async def until(self, other: Coroutine[Any, Any, T] | None, question: str) -> str | T:
        """There is nobody to ask."""
        raise EOFError(other, question)


class ProgressMessage:
    """Reports the progress of a long clone, in one message that is edited. Best effort."""

    def __init__(self, publish: Publish, chats: Chats, asker: Asker, what: str) -> None:
        self._publish = publish
        self._chats = chats
        self._asker = asker
        self._what = what
        self._ref = NOWHERE

    async def over(self) -> None:
        """The clone is complete."""
        if self._ref:
            await self.told("done")

    async def told(self, progress: str) -> None:
        """Report how far it is."""
        asker, message = self._asker, said(f"⏳ Cloning {code(self._what)} … {progress}")
        with suppress(ChatError):
            if self._ref:
                update = Update(target=self._ref, message=message)
                await self._chats.submit(asker.channel, uuid4().hex, update)
            else:
                post = Post(message=message, thread=asker.thread)
                self._ref = await self._publish(asker.channel, f"{asker.key} progress", post, True)  # noqa: FBT003 - it may stand there

"""The chats that are served, each with its own way out. Here alone it is decided which of them a channel belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from codebutler.chat.delivery.sender import Sender
from codebutler.chat.port import ChatPort, Page
from codebutler.chat.status import StatusBoard
from codebutler.config.channels import ChatName, chat_of
from codebutler.domain.errors import ChatError
from codebutler.domain.model import Operation


class ConnectionStatus(Protocol):
    """How a connection is; a dataclass, of which each chat tells more. ``trouble`` is "" while all is well."""

    @property
    def state(self) -> str:
        """``connected`` or not, in a word."""

    @property
    def trouble(self) -> str:
        """What is wrong, and what to do."""


class Connection(Protocol):
    """Our presence in a chat: brings its events to the intake. ``connected`` is set once the first try has worked."""

    @property
    def connected(self) -> asyncio.Event:
        """Set for good."""

    @property
    def status(self) -> ConnectionStatus:
        """How it is now."""

    async def run(self) -> None:
        """Until ``stop``, or until trying again is pointless. Raises ChatAuthError if the chat refuses a token at the
        start."""

    async def stop(self) -> None:
        """Take no more events; those being committed are finished."""

    def look_again(self) -> None:
        """There are other channels now, or something may have been missed."""


@dataclass(frozen=True, kw_only=True)
class ServedChat:
    """One chat, the queue of what is sent to it, and the line under its threads."""

    name: ChatName
    chat: ChatPort
    sender: Sender
    statuses: StatusBoard


class Chats:
    """All of them. Where a channel says enough, they are asked like one Sender."""

    def __init__(self, chats: Iterable[ServedChat]) -> None:
        self._by_name = {each.name: each for each in chats}

    def __iter__(self) -> Iterator[ServedChat]:
        return iter(self._by_name.values())

    def named(self, name: ChatName) -> ServedChat:
        """The chat of that name, which is served."""
        return self._by_name[name]

    def of(self, channel: str) -> ServedChat:
        """The chat of a channel. Raises ChatError where that is not served."""
        name = chat_of(channel)
        if name not in self._by_name:
            raise ChatError(f"{name} is not connected: run `codebutler setup`", "not_connected")
        return self._by_name[name]

    async def submit(
        self, channel: str, op_id: str, operation: Operation, *, unsure: bool = False, lasting: bool = False
    ) -> str:
        """See Sender."""
        sender = self.of(channel).sender
        return await sender.submit(channel, op_id, operation, unsure=unsure, lasting=lasting)

    async def history(
        self, channel: str, *, thread_ts: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> Page:
        """See Sender."""
        sender = self.of(channel).sender
        return await sender.history(channel, thread_ts=thread_ts, since_s=since_s, cursor=cursor)

    async def workspace_url(self) -> str:
        """Where links to Slack's messages lead; "" without Slack."""
        slack = self._by_name.get("Slack")
        return await slack.sender.workspace_url() if slack else ""

    def has_history(self, channel: str) -> bool:
        """Whether what was said in a channel can be fetched again."""
        return self.of(channel).chat.capabilities.history is not None

    def trouble(self, channel: str) -> str:
        """Why nothing can be sent to the chat of that channel now; "" while all is well."""
        return self.of(channel).sender.trouble

    @property
    def pending(self) -> int:
        """How many operations wait or are under way in all of them."""
        return sum(each.sender.pending for each in self)

    async def drain(self) -> None:
        """Wait until nothing is pending. Put a deadline around it."""
        await asyncio.gather(*(each.sender.drain() for each in self))

"""Groups without a repository: who learns how to give them one, and which ones we leave.

Anybody can add a bot to a group. A user of CodeButler gets instructions with their first message there, once;
nothing else is posted or stored. Others get no answer. If a stranger has added us, we leave: we would
otherwise receive all messages of the group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from codebutler.chat.delivery.sender import Sender
from codebutler.chat.telegram.chat import TelegramChat
from codebutler.chat.telegram.rules import number_of, person_of
from codebutler.chat.telegram.updates import NOBODY, Membership
from codebutler.domain.errors import ChatError, StoreError
from codebutler.domain.message import said
from codebutler.domain.model import MessagePosted, Post
from codebutler.domain.refs import ConversationRef, PersonRef
from codebutler.platform.tasks import Tasks

SETTLE_S = 10.0
"""A group that becomes a supergroup adds us to another chat, and only then says which one it was."""
NOT_SERVED = (
    "This group has no repository yet. Run `codebutler add-repo PATH --telegram {chat}` on the machine that runs "
    "CodeButler; until then I do not answer here."
)

log = logging.getLogger("codebutler.chat.telegram")


@dataclass(frozen=True, slots=True)
class UnknownGroup:
    """Somebody wrote in a group without a repository."""

    event: MessagePosted


class UnknownGroups:
    """Handles groups without a repository. ``registered``: whether a channel belongs to a repository, served or not;
    ``knows``: whether a person may use one. Everything returns at once."""

    def __init__(
        self,
        chat: TelegramChat,
        sender: Sender,
        registered: Callable[[ConversationRef], bool],
        knows: Callable[[PersonRef], bool],
        tasks: Tasks,
    ) -> None:
        self._chat = chat
        self._sender = sender
        self._registered = registered
        self._knows = knows
        self._tasks = tasks

    def written(self, event: MessagePosted) -> None:
        """Somebody wrote in such a group."""
        if self._knows(event.user) and not self._registered(event.channel):
            self._tasks.start(self._introduce(event), name=f"a word to {event.channel}")

    def joined(self, change: Membership) -> None:
        """Somebody added us to a group. An anonymous administrator could be anybody: then we stay, silently."""
        is_stranger = change.by not in (0, *NOBODY) and not self._knows(person_of(change.by))
        if change.is_in and change.chat < 0 and is_stranger:
            self._tasks.start(self._leave(change), name=f"leaving {change.chat}")

    async def _introduce(self, event: MessagePosted) -> None:
        try:
            if not await self._chat.records.is_first(event.channel):
                return
            await self._sender.submit(
                event.channel,
                f"unserved {event.channel}",
                Post(message=said(NOT_SERVED.format(chat=number_of(event.channel))), thread=event.thread),
            )
        except (ChatError, StoreError) as error:
            log.info("cannot tell %s how to add it: %s", event.channel, error)

    async def _leave(self, change: Membership) -> None:
        await self._chat.clock.sleep(SETTLE_S)
        if self._registered(self._chat.records.channel(change.chat)):
            return
        try:
            await self._chat.api.call("leaveChat", chat_id=change.chat)
            log.info(
                "left the group %s: %s, who is not allowed, had added the bot",
                change.chat,
                person_of(change.by),
            )
        except ChatError as error:
            log.info("cannot leave %s, a stranger's group: %s", change.chat, error)

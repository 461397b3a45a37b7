"""What a Bot API server knows: chats, their messages, and the updates that wait. Held to what Telegram documents and to
the source of its server; nothing here knows our adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from codebutler.domain.clock import Clock

KEPT_S = {"callback_query": 150.0}
"""How long an update waits; all others a day, from the date of their message."""
DAY_S = 86_400.0
FIRST_UPDATE = 700_000_001
# By default a bot is told everything but these.
RARE = frozenset({"chat_member", "message_reaction", "message_reaction_count"})


class Refused(Exception):  # noqa: N818 - it is an answer
    """Bad Request, or worse."""

    def __init__(self, description: str, code: int = 400, **parameters: Any) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


@dataclass(slots=True)
class Chat:
    id: int
    kind: str
    title: str = ""
    is_forum: bool = False
    messages: dict[int, dict[str, Any]] = field(default_factory=dict)
    reactions: dict[int, list[str]] = field(default_factory=dict)
    topics: dict[int, str] = field(default_factory=dict)
    allowed_reactions: frozenset[str] | None = None
    moved_to: int = 0
    is_closed: str = ""
    """A description: every call is refused with it."""
    actions: list[tuple[str, int]] = field(default_factory=list)
    numbers: int = 0
    pinned: int = 0

    def told(self) -> dict[str, Any]:
        named = {"title": self.title} if self.kind != "private" else {"first_name": self.title}
        return {"id": self.id, "type": self.kind, **named, **({"is_forum": True} if self.is_forum else {})}


@dataclass(slots=True)
class Waiting:
    update: dict[str, Any]
    until_s: float


class Telegram:
    """One bot's view. ``changed`` is called after everything that happens."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.me = {"id": 999, "is_bot": True, "first_name": "Butler", "username": "butler_bot"}
        self.chats: dict[int, Chat] = {}
        self.users: dict[int, dict[str, Any]] = {}
        self.files: dict[str, tuple[str, bytes]] = {}
        self.queries: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, str] = {}
        self.commands: list[dict[str, str]] = []
        self.webhook = ""
        self.allowed: frozenset[str] | None = None
        self.updates: list[Waiting] = []
        self.confirmed: list[int] = []
        self.changed: Callable[[], None] = lambda: None
        self._private_numbers = 100
        """Private chats and basic groups share one sequence."""
        self._next_update = FIRST_UPDATE
        self._next_query = 1

    def now(self) -> int:
        return int(self.clock.now().timestamp())

    def chat(self, number: object) -> Chat:
        found = self.chats.get(number) if isinstance(number, int) else None
        if found is None:
            raise Refused("Bad Request: chat not found")
        if found.moved_to:
            raise Refused(
                "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=found.moved_to
            )
        if found.is_closed:
            raise Refused(found.is_closed, 403)
        return found

    def number(self, chat: Chat) -> int:
        if chat.kind == "supergroup":
            chat.numbers += 1
            return chat.numbers
        self._private_numbers += 1
        return self._private_numbers

    def add(self, chat: Chat, message: dict[str, Any]) -> dict[str, Any]:
        """A message of whoever, with its number and date."""
        number = self.number(chat)
        whole = {"message_id": number, "date": self.now(), "chat": chat.told(), **message}
        chat.messages[number] = whole
        return whole

    def tell(self, kind: str, content: dict[str, Any]) -> int:
        """An update for the bot; 0 if it did not ask for those."""
        if kind not in self.allowed if self.allowed is not None else kind in RARE:
            return 0
        number = self._next_update
        self._next_update += 1
        date = content.get("edit_date", content.get("date", self.now()))
        until_s = (self.now() + KEPT_S[kind]) if kind in KEPT_S else date + DAY_S
        # As it is now: what becomes of a message later is another update.
        self.updates.append(Waiting({"update_id": number, kind: deepcopy(content)}, until_s))
        self.changed()
        return number

    def waiting(self) -> list[dict[str, Any]]:
        """What is not confirmed and not too old."""
        self.updates = [each for each in self.updates if each.until_s > self.now()]
        return [each.update for each in self.updates]

    def confirm(self, offset: int) -> None:
        """Forget what is below ``offset``; a negative one keeps that many of the newest."""
        keep = (
            self.updates[offset:]
            if offset < 0
            else [u for u in self.updates if u.update["update_id"] >= offset]
        )
        self.confirmed += [u.update["update_id"] for u in self.updates if u not in keep]
        self.updates = keep

    def query(self, content: dict[str, Any]) -> str:
        """Somebody presses a button."""
        name = str(self._next_query)
        self._next_query += 1
        self.queries[name] = content
        self.tell("callback_query", {"id": name, "chat_instance": "1", **content})
        return name

    def own(self, chat: int) -> list[dict[str, Any]]:
        """Our messages in a chat, the oldest first."""
        return [m for m in self.chats[chat].messages.values() if m.get("from", {}).get("id") == self.me["id"]]

    def texts(self, chat: int) -> list[str]:
        return [str(m.get("text", m.get("caption", ""))) for m in self.own(chat)]


class Polls:
    """getUpdates: the newest wins."""

    def __init__(self, telegram: Telegram, longest_s: float = 50.0) -> None:
        self._telegram = telegram
        self._longest_s = longest_s
        self._current: asyncio.Future[None] | None = None
        self._news = asyncio.Event()
        self.calls: list[int | None] = []
        telegram.changed = self._news.set

    @property
    def is_waiting(self) -> bool:
        return self._current is not None and not self._current.done()

    async def get(
        self, offset: int | None, limit: int, timeout_s: float, allowed: Iterable[str] | None
    ) -> list[dict[str, Any]]:
        if self._telegram.webhook:
            raise Refused(
                "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook", 409
            )
        self.calls.append(offset)
        if self._current is not None and not self._current.done():
            self._current.set_result(None)
        ended = self._current = asyncio.get_running_loop().create_future()
        if allowed is not None:
            self._telegram.allowed = frozenset(allowed)
        if offset:
            self._telegram.confirm(offset)
        try:
            await self._until_news(ended, min(timeout_s, self._longest_s))
        finally:
            if self._current is ended:
                self._current = None
        if ended.done():
            raise Refused(
                "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
                409,
            )
        return self._telegram.waiting()[: max(1, min(limit, 100))]

    async def _until_news(self, ended: asyncio.Future[None], timeout_s: float) -> None:
        if timeout_s <= 0 or self._telegram.waiting():
            return
        over: asyncio.Future[Any] = asyncio.ensure_future(self._telegram.clock.sleep(timeout_s))
        try:
            while not self._telegram.waiting():
                self._news.clear()
                news: asyncio.Future[Any] = asyncio.ensure_future(self._news.wait())
                await asyncio.wait({over, ended, news}, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                if over.done() or ended.done():
                    return
        finally:
            over.cancel()

"""The implementations of the chat's port: in memory, with all capabilities and with none; Slack, over the Web API of
the embedded workspace; Telegram, over a Bot API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pytest

from codebutler.chat.port import (
    CAPABILITIES,
    ChatPort,
    Ephemeral,
    Forms,
    History,
    HomePage,
    LookUp,
    StatusLine,
    Streams,
)
from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.render import REACTIONS as SLACK_REACTIONS
from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.chat import TelegramChat
from codebutler.chat.telegram.rules import REACTIONS
from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.workspace.api import Fault
from codebutler.workspace.server import WorkspaceServer
from tests.memory_chat import MemoryChat
from tests.notes import Notes
from tests.telegram.server import GROUP, BotServer
from tests.telegram.server import Fault as BotFault

Trouble = Literal["rate_limit", "auth", "unreachable", "lost", "refused"]

METHODS = {
    "identity": "auth.test",
    "post": "chat.postMessage",
    "update": "chat.update",
    "react": "reactions.add",
    "upload": "files.getUploadURLExternal",
    "share": "files.completeUploadExternal",
    "shared_in": "files.info",
    "history": "conversations.history",
    "replace": "chat.update",
}


BOT_METHODS = {
    "identity": "getMe",
    "post": "sendMessage",
    "update": "editMessageText",
    "react": "setMessageReaction",
    "share": "sendDocument",
}


@dataclass(frozen=True)
class Shown:
    """A message of ours as people see it: ``thread`` is the ts that it answers, "" if none; ``buttons`` what they say;
    ``files`` their names and sizes."""

    ts: str
    text: str
    thread: str = ""
    buttons: tuple[str, ...] = ()
    files: tuple[tuple[str, int], ...] = ()


class Whole(ChatPort, History, LookUp, Streams, Ephemeral, StatusLine, Forms, HomePage, Protocol):
    """A chat with all capabilities."""


class Rig(Protocol):
    """A port, a channel in it, a person who speaks there, and trouble for the next call of a method."""

    @property
    def chat(self) -> ChatPort: ...

    @property
    def channel(self) -> str: ...

    @property
    def nowhere(self) -> str:
        """A ts that no message has."""

    @property
    def refusal(self) -> str:
        """The code of the trouble "refused"."""

    @property
    def person(self) -> str: ...

    def say(self, text: str, thread_ts: str | None = None) -> str: ...

    async def shown(self) -> list[Shown]:
        """All that we said in the channel, the oldest first."""

    def reactions(self, ts: str) -> set[str]: ...

    def trouble(self, method: str, trouble: Trouble) -> None: ...


class AbleRig(Rig, Protocol):
    """``chat`` has everything, and there is a way to see it."""

    @property
    def chat(self) -> Whole: ...

    def asked_directly(self) -> tuple[str, str]: ...

    def status(self, ts: str) -> str: ...

    def home(self, user: str) -> list[Any]: ...

    def trigger(self) -> str: ...

    def form(self, user: str) -> str:
        """The title of what is open before them."""


class SlackLike:
    """What is said is seen in a history, as Slack shows it."""

    nowhere = "1000000000.000001"
    refusal = "is_archived"

    def __init__(self, history: History, channel: str, person: str) -> None:
        self._history = history
        self.channel = channel
        self.person = person
        self.roots: list[str] = []

    async def shown(self) -> list[Shown]:
        found = await everything(self._history, self.channel)
        for root in self.roots:
            found += (await everything(self._history, self.channel, root))[1:]
        return [_shown(message) for message in sorted(found, key=_ts) if message.get("bot_id")]


class MemoryRig(SlackLike):
    def __init__(self, lacks: Collection[str] = ()) -> None:
        self.chat = MemoryChat(lacks=lacks)
        super().__init__(self.chat, "C1", "U1")

    def say(self, text: str, thread_ts: str | None = None) -> str:
        ts = self.chat.say(self.channel, "U1", text, thread_ts=thread_ts)
        self.roots += [] if thread_ts else [ts]
        return ts

    def asked_directly(self) -> tuple[str, str]:
        """A direct conversation and a message there."""
        return "D1", self.chat.say("D1", "U1", "question")

    def reactions(self, ts: str) -> set[str]:
        return self.chat.marks(self.channel, ts)

    def home(self, user: str) -> list[Any]:
        return self.chat.homes[user]

    def trigger(self) -> str:
        self.chat.triggers["1.2"] = self.person
        return "1.2"

    def form(self, user: str) -> str:
        return self.chat.forms[user].title

    def status(self, ts: str) -> str:
        return self.chat.statuses.get((self.channel, ts), "")

    def trouble(self, method: str, trouble: Trouble) -> None:
        match trouble:
            case "rate_limit":
                self.chat.fail_next(method, ChatRateLimitedError(7))
            case "auth":
                self.chat.fail_next(method, ChatAuthError(code="invalid_auth"))
            case "unreachable":
                self.chat.fail_next(method, ChatUnreachableError("down"))
            case "lost":
                self.chat.deliver_then_fail(method, ChatOutcomeUnknownError("lost"))
            case "refused":
                self.chat.fail_next(method, ChatError(code="is_archived"))


class ApiRig(SlackLike):
    def __init__(self, server: WorkspaceServer, api: SlackApi) -> None:
        super().__init__(api, server.channel_id("general"), server.workspace.person.id)
        self.server = server
        self.chat = api

    def say(self, text: str, thread_ts: str | None = None) -> str:
        ts = self.server.say("general", text, thread_ts)
        self.roots += [] if thread_ts else [ts]
        return ts

    def asked_directly(self) -> tuple[str, str]:
        """A direct conversation and a message there."""
        place = self.server.workspace.open_im(self.person, self.server.workspace.bot.id).id
        said = self.server.call("chat.postMessage", self.server.user_token, channel=place, text="question")
        return place, str(said["ts"])

    def reactions(self, ts: str) -> set[str]:
        (message, *_) = self.server.thread("general", ts)
        names = {reaction["name"] for reaction in message.get("reactions", ())}
        return {mark for mark, name in SLACK_REACTIONS.items() if name in names}

    def status(self, ts: str) -> str:
        shown = self.server.context.statuses.get((self.channel, ts))
        return shown.text if shown else ""

    def home(self, user: str) -> list[Any]:
        view = self.server.context.views.home(user)
        return view.blocks if view else []

    def trigger(self) -> str:
        return self.server.context.views.trigger(self.person)

    def form(self, user: str) -> str:
        return str(self.server.context.views.stack(user)[-1].content["title"]["text"])

    def trouble(self, method: str, trouble: Trouble) -> None:
        name = METHODS[method]
        match trouble:
            case "rate_limit":
                self.server.faults.add(Fault(method=name, kind="rate_limit", retry_after_s=7))
            case "auth":
                self.server.faults.add(Fault(method=name, kind="error", error="invalid_auth"))
            case "unreachable":
                self.server.faults.add(Fault(method=name, kind="status", status=503))
            case "lost":
                self.server.faults.add(Fault(method=name, kind="lost"))
            case "refused":
                self.server.faults.add(Fault(method=name, kind="error", error="is_archived"))


class BotRig:
    """Telegram: one reaction of ours, of a few."""

    nowhere = "000000999999"
    refusal = "not_in_channel"
    channel = f"tg:{GROUP}"

    def __init__(self, server: BotServer, chat: TelegramChat) -> None:
        self.server = server
        self.chat = chat
        self.person = "tg:111"

    def say(self, text: str, thread_ts: str | None = None) -> str:
        return _padded(self.server.say(GROUP, text, **({"reply_to": int(thread_ts)} if thread_ts else {})))

    async def shown(self) -> list[Shown]:
        return [_told(message) for message in self.server.telegram.own(GROUP)]

    def reactions(self, ts: str) -> set[str]:
        shown = self.server.telegram.chats[GROUP].reactions.get(int(ts), [])
        return {name for name, emoji in REACTIONS.items() if emoji in shown}

    def trouble(self, method: str, trouble: Trouble) -> None:
        name = BOT_METHODS[method]
        match trouble:
            case "rate_limit":
                fault = BotFault(name, "rate_limit", retry_after=7)
            case "auth":
                fault = BotFault(name, "refused", "Unauthorized", 401)
            case "unreachable":
                fault = BotFault(name, "status", code=503)
            case "lost":
                fault = BotFault(name, "lost")
            case "refused":
                fault = BotFault(name, "refused", "Forbidden: bot was kicked from the supergroup chat", 403)
        self.server.faults.append(fault)


def _shown(message: dict[str, Any]) -> Shown:
    keys = [key for block in message.get("blocks", ()) for key in block.get("elements", ())]
    thread = message.get("thread_ts", "")
    return Shown(
        ts=message["ts"],
        text=message["text"],
        thread="" if thread == message["ts"] else thread,
        buttons=tuple(key["text"]["text"] for key in keys if key.get("type") == "button"),
        files=tuple((file["name"], file["size"]) for file in message.get("files", ())),
    )


def _told(message: dict[str, Any]) -> Shown:
    answered = message.get("reply_to_message", {}).get("message_id", 0)
    rows = message.get("reply_markup", {}).get("inline_keyboard", ())
    file = message.get("document")
    return Shown(
        ts=_padded(message["message_id"]),
        text=message.get("text", message.get("caption", "")),
        thread=_padded(answered) if answered else "",
        buttons=tuple(key["text"] for row in rows for key in row),
        files=((file["file_name"], file["file_size"]),) if file else (),
    )


def _padded(number: int) -> str:
    return f"{number:012d}"


def _ts(message: dict[str, Any]) -> str:
    return str(message["ts"])


@pytest.fixture(params=["memory", "bare", "slack", "telegram"])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """Every chat: what all have."""
    match request.param:
        case "telegram":
            async with BotServer() as bots, TelegramChat(BotApi(bots.token, bots.url), Notes()) as chat:
                yield BotRig(bots, chat)
        case "slack":
            async with (
                WorkspaceServer() as server,
                SlackApi(server.bot_token, base_url=server.api_url) as api,
            ):
                yield ApiRig(server, api)
        case kind:
            yield MemoryRig(CAPABILITIES if kind == "bare" else ())


@pytest.fixture(params=["memory", "slack"])
async def able(request: pytest.FixtureRequest) -> AsyncIterator[AbleRig]:
    """Those that have all capabilities."""
    if request.param == "memory":
        yield MemoryRig()
        return
    async with WorkspaceServer() as server, SlackApi(server.bot_token, base_url=server.api_url) as api:
        yield ApiRig(server, api)


async def everything(chat: History, channel: str, thread_ts: str | None = None) -> list[dict[str, Any]]:
    """All of a history."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = await chat.history(channel, thread=thread_ts, cursor=cursor)
        found += [dict(message.raw) for message in page.messages]
        if not (cursor := page.next_cursor):
            return found


async def replies(rig: AbleRig, place: str, root: str) -> list[dict[str, Any]]:
    page = await rig.chat.history(place, thread=root)
    return [dict(message.raw) for message in page.messages[1:]]

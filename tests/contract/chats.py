"""The implementations of the chat's port: in memory, with all capabilities and with none, and over the Web API of the
embedded workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any, Literal, Protocol

import pytest

from codebutler.chat.memory import MemoryChat
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
from codebutler.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.workspace.faults import Fault
from codebutler.workspace.server import WorkspaceServer

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


class Whole(ChatPort, History, LookUp, Streams, Ephemeral, StatusLine, Forms, HomePage, Protocol):
    """A chat with all capabilities."""


class Rig(Protocol):
    """A port, a channel in it, a person who speaks there, and trouble for the next call of a method."""

    @property
    def chat(self) -> ChatPort: ...

    @property
    def eye(self) -> History:
        """Sees what stands there, whatever the port can tell."""

    @property
    def channel(self) -> str: ...

    @property
    def person(self) -> str: ...

    def say(self, text: str, thread_ts: str | None = None) -> str: ...

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

    def form(self, user: str) -> dict[str, Any]: ...


class MemoryRig:
    def __init__(self, lacks: Collection[str] = ()) -> None:
        self.chat = self.eye = MemoryChat(lacks=lacks)
        self.channel = "C1"
        self.person = "U1"

    def say(self, text: str, thread_ts: str | None = None) -> str:
        return self.chat.say(self.channel, "U1", text, thread_ts=thread_ts)

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

    def form(self, user: str) -> dict[str, Any]:
        return self.chat.forms[user]

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


class ApiRig:
    def __init__(self, server: WorkspaceServer, api: SlackApi) -> None:
        self.server = server
        self.chat = self.eye = api
        self.channel = server.channel_id("general")
        self.person = server.workspace.person.id

    def say(self, text: str, thread_ts: str | None = None) -> str:
        return self.server.say("general", text, thread_ts)

    def asked_directly(self) -> tuple[str, str]:
        """A direct conversation and a message there."""
        place = self.server.workspace.open_im(self.person, self.server.workspace.bot.id).id
        said = self.server.call("chat.postMessage", self.server.user_token, channel=place, text="question")
        return place, str(said["ts"])

    def reactions(self, ts: str) -> set[str]:
        (message, *_) = self.server.thread("general", ts)
        return {reaction["name"] for reaction in message.get("reactions", ())}

    def status(self, ts: str) -> str:
        shown = self.server.house.statuses.get((self.channel, ts))
        return shown.text if shown else ""

    def home(self, user: str) -> list[Any]:
        view = self.server.house.views.home(user)
        return view.blocks if view else []

    def trigger(self) -> str:
        return self.server.house.views.trigger(self.person)

    def form(self, user: str) -> dict[str, Any]:
        return self.server.house.views.stack(user)[-1].given

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


@pytest.fixture(params=["memory", "bare", "api"])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """Every chat: what all have."""
    if request.param != "api":
        yield MemoryRig(CAPABILITIES if request.param == "bare" else ())
        return
    async with WorkspaceServer() as server, SlackApi(server.bot_token, base_url=server.api_url) as api:
        yield ApiRig(server, api)


@pytest.fixture(params=["memory", "api"])
async def able(request: pytest.FixtureRequest) -> AsyncIterator[AbleRig]:
    """Those that have all capabilities."""
    if request.param == "memory":
        yield MemoryRig()
        return
    async with WorkspaceServer() as server, SlackApi(server.bot_token, base_url=server.api_url) as api:
        yield ApiRig(server, api)


async def everything(rig: Rig, thread_ts: str | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = await rig.eye.history(rig.channel, thread_ts=thread_ts, cursor=cursor)
        found += page.messages
        if not (cursor := page.next_cursor):
            return found


async def replies(rig: AbleRig, place: str, root: str) -> list[dict[str, Any]]:
    return list((await rig.chat.history(place, thread_ts=root)).messages[1:])

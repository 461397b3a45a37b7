"""A Bot API server in this process, with people to speak for and faults to script."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from aiohttp import web
from aiohttp.test_utils import TestServer

from codebutler.domain.clock import Clock, SystemClock
from tests.telegram.methods import Methods, _bare
from tests.telegram.state import Chat, Polls, Refused, Telegram

TOKEN = "123456789:AAtest-token_of-no-bot_at-all_0123456"
TEXTS = frozenset({"text", "caption", "name", "file_id", "callback_query_id"})
"""Texts that may look like a number or a truth."""
GROUP, FORUM, ANA, BEN = -1001000000001, -1001000000002, 111, 222


@dataclass(slots=True)
class Fault:
    """Of the next ``times`` calls of ``method``. "lost": it is done, and no answer comes; "dropped": it is not done,
    and no answer comes; "status": a page of a server in trouble; "refused": Telegram's own words."""

    method: str
    kind: Literal["lost", "dropped", "status", "refused", "rate_limit"]
    description: str = ""
    code: int = 400
    times: int = 1
    retry_after: int = 7
    after: int = 0
    """So many calls go well before."""


class BotServer:
    """An async context manager. A private chat with Ana, a group and a forum are there."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.telegram = Telegram(clock or SystemClock())
        self.polls = Polls(self.telegram)
        self.methods = Methods(self.telegram)
        self.faults: list[Fault] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.token = TOKEN
        app = web.Application(client_max_size=60 * 2**20)
        app.router.add_post("/bot{token}/{method}", self._call)
        app.router.add_get("/file/bot{token}/{path:.+}", self._file)
        self._server = TestServer(app)
        for chat in (
            Chat(ANA, "private", "Ana"),
            Chat(GROUP, "supergroup", "shop"),
            Chat(FORUM, "supergroup", "forum", is_forum=True),
        ):
            self.telegram.chats[chat.id] = chat
        for number, name in ((ANA, "Ana"), (BEN, "Ben")):
            self.telegram.users[number] = {"id": number, "is_bot": False, "first_name": name}

    async def __aenter__(self) -> Self:
        await self._server.start_server()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.close()

    @property
    def url(self) -> str:
        return str(self._server.make_url("")).rstrip("/")

    def say(self, chat: int, text: str = "", user: int = ANA, **more: Any) -> int:
        """Somebody writes; returns the message's number. ``topic`` and ``reply_to`` as numbers."""
        house = self.telegram.chats[chat]
        topic, answered = more.pop("topic", 0), more.pop("reply_to", 0)
        message: dict[str, Any] = {
            "from": self.telegram.users[user],
            **({"text": text} if text else {}),
            **more,
        }
        if topic:
            message |= {"message_thread_id": topic, "is_topic_message": True}
            message["reply_to_message"] = _bare(house.messages[topic])
        if answered:
            message["reply_to_message"] = _bare(house.messages[answered])
        sent = self.telegram.add(house, message)
        self.telegram.tell("message", sent)
        return int(sent["message_id"])

    def edit(self, chat: int, number: int, text: str) -> None:
        """Somebody changes what they wrote."""
        message = self.telegram.chats[chat].messages[number]
        message.update(text=text, edit_date=self.telegram.now())
        self.telegram.tell("edited_message", dict(message))

    def press(self, chat: int, number: int, label: str, user: int = ANA) -> str:
        """Somebody presses the button that says ``label``; returns the query's id."""
        message = self.telegram.chats[chat].messages[number]
        keys = [key for row in message["reply_markup"]["inline_keyboard"] for key in row]
        data = next(key["callback_data"] for key in keys if label in key["text"])
        return self.press_data(chat, number, data, user)

    def press_data(self, chat: int, number: int, data: str, user: int = ANA) -> str:
        """The same for any client, which may send any data."""
        message = json.loads(json.dumps(self.telegram.chats[chat].messages[number]))
        return self.telegram.query({"from": self.telegram.users[user], "message": message, "data": data})

    def keys(self, chat: int, number: int) -> list[list[str]]:
        """What the buttons below a message say."""
        markup = self.telegram.chats[chat].messages[number].get("reply_markup", {})
        return [[key["text"] for key in row] for row in markup.get("inline_keyboard", [])]

    def topic(self, chat: int, name: str, user: int = ANA) -> int:
        """Somebody opens a topic."""
        house = self.telegram.chats[chat]
        number = self.methods.open_topic(house, name, self.telegram.users[user])
        self.telegram.tell("message", house.messages[number])
        return number

    def put_file(self, file_id: str, content: bytes, path: str = "") -> dict[str, Any]:
        """A file that somebody can send."""
        self.telegram.files[file_id] = (path or f"documents/{file_id}.bin", content)
        return {"file_id": file_id, "file_unique_id": file_id, "file_size": len(content)}

    def migrate(self, chat: int, new: int, *, tell: bool = True) -> None:
        """A group becomes a supergroup."""
        old = self.telegram.chats[chat]
        self.telegram.chats[new] = Chat(new, "supergroup", old.title)
        if tell:
            self.telegram.tell("message", self.telegram.add(old, {"migrate_to_chat_id": new}))
        old.moved_to = new

    def named(self, method: str) -> list[dict[str, Any]]:
        """What calls of a method brought."""
        return [given for name, given in self.calls if name == method]

    async def _call(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        given = await _given(request)
        self.calls.append((method, given))
        if request.match_info["token"] != self.token:
            return _refusal(Refused("Unauthorized", 401))
        fault = self._fault(method)
        if fault is not None and fault.kind == "dropped":
            return _cut(request)
        if fault is not None and fault.kind != "lost":
            return _faulty(fault)
        try:
            result = await self._done(method, given)
        except Refused as error:
            return _refusal(error)
        if fault is not None:
            return _cut(request)
        shown = json.loads(json.dumps(result, default=str))
        return web.json_response({"ok": True, "result": _public(shown)})

    async def _done(self, method: str, given: Mapping[str, Any]) -> Any:
        if method == "getUpdates":
            return await self.polls.get(
                given.get("offset"),
                given.get("limit", 100),
                given.get("timeout", 0),
                given.get("allowed_updates"),
            )
        if (found := self.methods.find(method)) is None:
            raise Refused("Not Found: method not found", 404)
        return found(given)

    async def _file(self, request: web.Request) -> web.Response:
        path = request.match_info["path"]
        content = next((content for known, content in self.telegram.files.values() if known == path), None)
        if request.match_info["token"] != self.token or content is None:
            return web.json_response({"ok": False, "error_code": 404, "description": "Not Found"}, status=404)
        return web.Response(body=content)

    def _fault(self, method: str) -> Fault | None:
        for fault in self.faults:
            if fault.method != method:
                continue
            if fault.after:
                fault.after -= 1
                return None
            fault.times -= 1
            if not fault.times:
                self.faults.remove(fault)
            return fault
        return None


async def _given(request: web.Request) -> dict[str, Any]:
    if request.content_type == "application/json":
        found: dict[str, Any] = await request.json()
        return found
    given: dict[str, Any] = {}
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            given[name] = (value.filename, value.file.read())
        else:
            text = str(value)
            given[name] = text if name in TEXTS else _value(text)
    return given


def _value(text: str) -> Any:
    """A form has texts only: numbers, truths and objects are written as JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _faulty(fault: Fault) -> web.Response:
    if fault.kind == "status":
        return web.Response(status=fault.code if fault.code >= 500 else 502, text="<html>Bad Gateway</html>")
    if fault.kind == "rate_limit":
        wait = fault.retry_after
        return _refusal(Refused(f"Too Many Requests: retry after {wait}", 429, retry_after=wait))
    return _refusal(Refused(fault.description, fault.code))


def _refusal(error: Refused) -> web.Response:
    body = {"ok": False, "error_code": error.code, "description": error.description}
    if error.parameters:
        body["parameters"] = error.parameters
    return web.json_response(body, status=error.code)


def _cut(request: web.Request) -> web.Response:
    """No answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _public(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _public(inner) for name, inner in value.items() if not name.startswith("_")}
    return [_public(inner) for inner in value] if isinstance(value, list) else value

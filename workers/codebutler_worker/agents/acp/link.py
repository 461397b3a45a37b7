"""Link: the messages to and from a process that speaks the Agent Client Protocol.

The library matches answers to requests and validates their content. The pipe is our own: the library's reads lines of
any length, has no flow control, and logs whatever an agent sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.meta import AGENT_METHODS, CLIENT_METHODS, PROTOCOL_VERSION
from acp.schema import (
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptResponse,
    RequestPermissionRequest,
    SessionNotification,
)
from msgspec import Struct
from pydantic import ValidationError

from codebutler.config.section import OURS
from codebutler_worker.agents.backend import Started, Verdict
from codebutler_worker.sandbox.process import AgentProcess
from codebutler_worker.tools.lenient_json import UnreadableError, parse_message

QUEUE_MESSAGES = 256
MOST_ASKED = 20
"""Requests that may wait for people at once; further ones are refused."""

WORDS_CHARS = 2_000
LARGE_BYTES = 64 * 2**10
"""A message of this size must be received before the next one is read: a full queue of them would take gigabytes."""


class PermissionAsked(Struct, frozen=True):
    """The agent asks for permission or a choice; ``chosen`` receives the option, None = cancelled."""

    id: str
    request: RequestPermissionRequest
    chosen: asyncio.Future[str | None]


class Pause(Struct, frozen=True):
    """The agent has completed the prompt and gets more input."""


Received = SessionNotification | PermissionAsked | Started | Pause | Verdict


class AcpLink:
    """Lives as long as one turn. ``server`` starts the MCP server that the agent gets, () = none."""

    def __init__(self, process: AgentProcess, server: tuple[str, ...] = ()) -> None:
        self._servers = (
            [{"name": OURS, "command": server[0], "args": server[1:], "env": []}] if server else []
        )
        self.session_id = ""
        self.spoke = False
        self.pipe = Pipe(process, self.room)
        self._heard: deque[Received] = deque()
        self._news = asyncio.Event()
        self._taken = asyncio.Event()
        self._taken.set()
        self.asked: dict[str, PermissionAsked] = {}
        self._requests = 0
        self._listening = False
        self._connection = Connection(self._handle, self.pipe)

    # -- requests to the agent; each raises RequestError (it refused), ConnectionError (it is gone) or ValidationError
    # (it speaks another protocol)

    async def initialize(self) -> InitializeResponse:
        """Shake hands. The agent gets no file or terminal access through us: it works inside the sandbox itself."""
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        hello = {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": capabilities,
            "clientInfo": {"name": "codebutler", "title": "CodeButler", "version": "1"},
        }
        answer = InitializeResponse.model_validate(await self._ask("initialize", hello))
        self.spoke = True
        return answer

    async def new_session(self, workdir: Path) -> NewSessionResponse:
        """Start a session."""
        given = {"cwd": os.path.realpath(workdir), "mcpServers": self._servers}
        session = NewSessionResponse.model_validate(await self._ask("session_new", given))
        self.session_id = session.session_id
        return session

    async def continue_session(self, session_id: str, workdir: Path, *, silent: bool) -> LoadSessionResponse:
        """Continue an earlier session. Without ``silent`` the agent repeats the whole history, which we ignore."""
        given = {
            "sessionId": session_id,
            "cwd": os.path.realpath(workdir),
            "mcpServers": self._servers,
        }
        answer = await self._ask("session_resume" if silent else "session_load", given)
        self.session_id = session_id
        return LoadSessionResponse.model_validate(answer or {})

    async def set_mode(self, mode: str) -> None:
        """Choose one of the session's modes."""
        await self._ask("session_set_mode", {"sessionId": self.session_id, "modeId": mode})

    async def set_model(self, model: str) -> None:
        """Choose the session's model."""
        given = {"sessionId": self.session_id, "configId": "model", "value": model}
        await self._ask("session_set_config_option", given)

    async def prompt(self, texts: list[str]) -> PromptResponse:
        """Run one turn; messages during it go to ``receive``."""
        self._listening = True
        blocks = [{"type": "text", "text": text} for text in texts]
        given = {"sessionId": self.session_id, "prompt": blocks}
        return PromptResponse.model_validate(await self._ask("session_prompt", given))

    async def cancel(self) -> None:
        """Ask the agent to end its turn, and cancel its pending requests (the protocol requires both)."""
        with contextlib.suppress(ConnectionError):
            given = {"sessionId": self.session_id}
            await self._connection.send_notification(AGENT_METHODS["session_cancel"], given)
        for asked in list(self.asked.values()):
            self.answer(asked.id, None)

    async def _ask(self, method: str, given: dict[str, Any]) -> Any:
        return await self._connection.send_request(AGENT_METHODS[method], given)

    # -- messages from the agent

    def __aiter__(self) -> AcpLink:
        return self

    async def __anext__(self) -> Received:
        """The next message."""
        while not self._heard:
            self._news.clear()
            await self._news.wait()
        return self._take()

    def received_so_far(self) -> list[Received]:
        """All messages that nobody has received yet."""
        return [self._take() for _ in range(len(self._heard))]

    def tell(self, heard: Received) -> None:
        """Insert a message for ``receive``."""
        self._heard.append(heard)
        self._news.set()

    def answer(self, request_id: str, option_id: str | None) -> bool:
        """Answer a pending request; False if it is no longer pending."""
        asked = self.asked.pop(request_id, None)
        if asked is None or asked.chosen.done():
            return False
        asked.chosen.set_result(option_id)
        return True

    async def room(self, large: bool) -> None:
        """Wait until most of the earlier messages have been received or, after a ``large`` one, all of them."""
        while len(self._heard) >= (1 if large else QUEUE_MESSAGES):
            self._taken.clear()
            await self._taken.wait()

    def _take(self) -> Received:
        self._taken.set()
        return self._heard.popleft()

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:
        if method == CLIENT_METHODS["session_update"]:
            self._updated(params)
            return None
        if method == CLIENT_METHODS["session_request_permission"] and not is_notification:
            return await self._permission(params)
        if is_notification:
            return None
        # Including files and terminals, which we did not offer.
        raise RequestError.method_not_found(method)

    def _updated(self, params: Any) -> None:
        try:
            update = SessionNotification.model_validate(params)
        except ValidationError:
            return
        if self._listening and update.session_id == self.session_id:
            self.tell(update)

    async def _permission(self, params: Any) -> dict[str, Any]:
        try:
            request = RequestPermissionRequest.model_validate(params)
        except ValidationError:
            raise RequestError.invalid_params() from None
        if not self._listening or request.session_id != self.session_id or len(self.asked) >= MOST_ASKED:
            return {"outcome": {"outcome": "cancelled"}}
        self._requests += 1
        asked = PermissionAsked(f"ask-{self._requests}", request, asyncio.get_running_loop().create_future())
        self.asked[asked.id] = asked
        self.tell(asked)
        option_id = await asked.chosen
        if option_id is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": option_id}}

    async def close(self) -> None:
        """Stop sending and receiving."""
        await self._connection.close()


class Pipe:
    """The library's Transport: messages as lines of a process. Lines that are not messages are dropped; the first of
    them, ``last_words``, may explain why there is no protocol. ``room`` returns when there is room for another message
    after the previous ones, the last of which may have been a large one."""

    def __init__(self, process: AgentProcess, room: Callable[[bool], Awaitable[None]]) -> None:
        self.last_words = ""
        self._process = process
        self._lines = process.lines()
        self._room = room
        self._was_large = False

    async def send(self, message: dict[str, Any]) -> None:
        """Raises ConnectionError for a request that cannot be sent; for an answer nobody needs to know."""
        sent = await self._process.write_line(msgspec.json.encode(message))
        if not sent and "method" in message:
            raise ConnectionError("the agent no longer reads")

    async def receive(self) -> dict[str, Any] | None:
        """The next message, None at the end of the stream. Under a flood, data waits in the pipe, not in our memory."""
        await self._room(self._was_large)
        async for line in self._lines:
            self._was_large = len(line) >= LARGE_BYTES
            message = decode(line)
            if message is not None:
                return message
            self._not_understood(line)
        return None

    async def close(self) -> None:
        """Does nothing: the link ends the process."""

    def _not_understood(self, line: bytes) -> None:
        if line.strip():
            left = WORDS_CHARS - len(self.last_words)
            self.last_words += line[:WORDS_CHARS].decode(errors="replace")[: max(left, 0)] + "\n"


def decode(line: bytes) -> dict[str, Any] | None:
    """A message that the library accepts, None for anything else."""
    try:
        message = parse_message(line)
    except UnreadableError:
        return None
    if not isinstance(message, dict) or not isinstance(message.get("id"), int | str | None):
        return None
    if "method" in message:
        return message if isinstance(message["method"], str) else None
    failed = message.get("error")
    if failed is not None and not (
        isinstance(failed, dict)
        and isinstance(failed.get("code", 0), int)
        and isinstance(failed.get("message", ""), str)
    ):
        return None
    return message if "id" in message else None

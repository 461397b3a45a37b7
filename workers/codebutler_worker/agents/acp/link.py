"""Link: the messages that go in and out of a process that speaks the Agent Client Protocol.

The library matches answers to requests and checks what they hold. The pipe is ours: the library's own reads lines of
any length, takes no notice of a flood, and logs what an agent makes up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
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
from pydantic import ValidationError

from codebutler_worker.agents.backend import Started, Verdict
from codebutler_worker.programs.process import AgentProcess

QUEUE_MESSAGES = 256
MOST_ASKED = 20
"""Requests that may wait for people at once; an agent that asks more is refused."""


@dataclass(frozen=True, slots=True)
class PermissionAsked:
    """The agent asks permission, or which of several things; ``chosen`` takes the option, None = cancelled."""

    id: str
    request: RequestPermissionRequest
    chosen: asyncio.Future[str | None]


@dataclass(frozen=True, slots=True)
class Pause:
    """The agent came to the end of what it was told, and is told more."""


Received = SessionNotification | PermissionAsked | Started | Pause | Verdict


class AcpLink:
    """Lives as long as one turn."""

    def __init__(self, process: AgentProcess) -> None:
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

    # -- what the agent is asked; each raises RequestError (its refusal), ConnectionError (it is gone) or
    # -- ValidationError (it speaks another protocol)

    async def initialize(self) -> InitializeResponse:
        """Shake hands. The agent gets no files and no terminal of ours: it works inside the walls itself."""
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
        """Begin a session."""
        given = {"cwd": os.path.realpath(workdir), "mcpServers": []}
        session = NewSessionResponse.model_validate(await self._ask("session_new", given))
        self.session_id = session.session_id
        return session

    async def continue_session(self, session_id: str, workdir: Path, *, silent: bool) -> LoadSessionResponse:
        """Go on with an earlier session; without ``silent`` the agent tells all of it again, which is not heard."""
        given = {"sessionId": session_id, "cwd": os.path.realpath(workdir), "mcpServers": []}
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
        """Run one turn; what happens meanwhile is heard."""
        self._listening = True
        blocks = [{"type": "text", "text": text} for text in texts]
        given = {"sessionId": self.session_id, "prompt": blocks}
        return PromptResponse.model_validate(await self._ask("session_prompt", given))

    async def cancel(self) -> None:
        """Ask the agent to end its turn, and take back what it waits for (the protocol wants both)."""
        with contextlib.suppress(ConnectionError):
            given = {"sessionId": self.session_id}
            await self._connection.send_notification(AGENT_METHODS["session_cancel"], given)
        for asked in list(self.asked.values()):
            self.answer(asked.id, None)

    async def _ask(self, method: str, given: dict[str, Any]) -> Any:
        return await self._connection.send_request(AGENT_METHODS[method], given)

    # -- what the agent says

    async def receive(self) -> Received:
        """The next thing it says."""
        while not self._heard:
            self._news.clear()
            await self._news.wait()
        return self._take()

    def received_so_far(self) -> list[Received]:
        """Everything it has said that nobody heard yet."""
        return [self._take() for _ in range(len(self._heard))]

    def tell(self, heard: Received) -> None:
        """Put something among what is heard."""
        self._heard.append(heard)
        self._news.set()

    def answer(self, request_id: str, option_id: str | None) -> bool:
        """Choose for a pending request; False if nobody waits for it any more."""
        asked = self.asked.pop(request_id, None)
        if asked is None or asked.chosen.done():
            return False
        asked.chosen.set_result(option_id)
        return True

    async def room(self, large: bool) -> None:
        """Wait until what was said before has been heard: most of it, or, where it was ``large``, all."""
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
        # Files and terminals among them: the agent was told that there are none.
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
        """Nothing is said or heard any more."""
        await self._connection.close()


WORDS_CHARS = 2_000
LARGE_BYTES = 64 * 2**10
"""A message of so many is heard before the next one is read: a queue full of them would be gigabytes."""


class Pipe:
    """The library's Transport: messages as lines of a process. What is no message is dropped; the first of it,
    ``last_words``, may say why there is none. ``room`` returns when there is room for another
    message after those before, the last of which may have been a large one."""

    def __init__(self, process: AgentProcess, room: Callable[[bool], Awaitable[None]]) -> None:
        self.last_words = ""
        self._process = process
        self._lines = process.lines()
        self._room = room
        self._was_large = False

    async def send(self, message: dict[str, Any]) -> None:
        """Raises ConnectionError for a request that cannot be sent; nobody waits for what an answer comes to."""
        sent = await self._process.write_line(msgspec.json.encode(message))
        if not sent and "method" in message:
            raise ConnectionError("the agent does not read any more")

    async def receive(self) -> dict[str, Any] | None:
        """The next message, None at the end of the stream. A flood waits in the pipe, not in our memory."""
        await self._room(self._was_large)
        async for line in self._lines:
            self._was_large = len(line) >= LARGE_BYTES
            message = decode(line)
            if message is not None:
                return message
            self._not_understood(line)
        return None

    async def close(self) -> None:
        """The process is ended by the link."""

    def _not_understood(self, line: bytes) -> None:
        if line.strip():
            left = WORDS_CHARS - len(self.last_words)
            self.last_words += line[:WORDS_CHARS].decode(errors="replace")[: max(left, 0)] + "\n"


def decode(line: bytes) -> dict[str, Any] | None:
    """A message that the library can take, None for anything else."""
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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

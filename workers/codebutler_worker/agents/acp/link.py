"""Link: one process that speaks the Agent Client Protocol, and the messages that go in and out of it.

The library matches answers to requests and checks what they hold. The pipe is ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

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

from codebutler_worker.agents.acp.pipe import Pipe
from codebutler_worker.agents.backend import Started
from codebutler_worker.egress.way import Way
from codebutler_worker.programs.process import AgentProcess, Record
from codebutler_worker.sandbox.port import Launch

QUEUE_MESSAGES = 256
MOST_ASKED = 20
"""Requests that may wait for people at once; an agent that asks more is refused."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The agent asks leave, or which of several things; ``chosen`` takes the option, None = the turn is cancelled."""

    id: str
    request: RequestPermissionRequest
    chosen: asyncio.Future[str | None]


@dataclass(frozen=True, slots=True)
class Pause:
    """The agent came to the end of what it was told, and is told more."""


Heard = SessionNotification | Asked | Started | Pause


class Link:
    """Lives as long as one turn; ``end`` leaves nothing of it behind."""

    def __init__(self, process: AgentProcess) -> None:
        self.session_id = ""
        self.spoke = False
        self.way: Way | None = None
        """Its way out, which ends with it."""
        self.process = process
        self.pipe = Pipe(process, self.room)
        self._heard: deque[Heard] = deque()
        self._news = asyncio.Event()
        self._taken = asyncio.Event()
        self._taken.set()
        self._asked: dict[str, Asked] = {}
        self._requests = 0
        self._unknown = 0
        self._listening = False
        self._connection = Connection(self._handle, self.pipe)

    @classmethod
    async def open(cls, launch: Launch, record: Record | None = None) -> Self:
        """Start the process; ``record`` gets all it writes. Raises AgentUnavailableError if it cannot be started."""
        return cls(await AgentProcess.spawn(launch, record=record))

    @property
    def ignored(self) -> int:
        """How much of what it said was not understood."""
        return self._unknown + self.pipe.ignored

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
        for asked in list(self._asked.values()):
            self.answer(asked.id, None)

    async def _ask(self, method: str, given: dict[str, Any]) -> Any:
        return await self._connection.send_request(AGENT_METHODS[method], given)

    # -- what the agent says

    async def hear(self) -> Heard:
        """The next thing it says."""
        while not self._heard:
            self._news.clear()
            await self._news.wait()
        return self._take()

    def heard_so_far(self) -> list[Heard]:
        """Everything it has said that nobody heard yet."""
        return [self._take() for _ in range(len(self._heard))]

    def tell(self, heard: Heard) -> None:
        """Put something among what is heard."""
        self._heard.append(heard)
        self._news.set()

    def answer(self, request_id: str, option_id: str | None) -> bool:
        """Choose for a pending request; False if nobody waits for it any more."""
        asked = self._asked.pop(request_id, None)
        if asked is None or asked.chosen.done():
            return False
        asked.chosen.set_result(option_id)
        return True

    async def room(self, *, large: bool = False) -> None:
        """Wait until what was said before has been heard: most of it, or, where it was ``large``, all."""
        while len(self._heard) >= (1 if large else QUEUE_MESSAGES):
            self._taken.clear()
            await self._taken.wait()

    def _take(self) -> Heard:
        self._taken.set()
        return self._heard.popleft()

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:
        if method == CLIENT_METHODS["session_update"]:
            self._updated(params)
            return None
        if method == CLIENT_METHODS["session_request_permission"] and not is_notification:
            return await self._permission(params)
        self._unknown += 1
        if is_notification:
            return None
        # Files and terminals among them: the agent was told that there are none.
        raise RequestError.method_not_found(method)

    def _updated(self, params: Any) -> None:
        try:
            update = SessionNotification.model_validate(params)
        except ValidationError:
            self._unknown += 1
            return
        if self._listening and update.session_id == self.session_id:
            self.tell(update)

    async def _permission(self, params: Any) -> dict[str, Any]:
        try:
            request = RequestPermissionRequest.model_validate(params)
        except ValidationError:
            raise RequestError.invalid_params() from None
        if not self._listening or request.session_id != self.session_id or len(self._asked) >= MOST_ASKED:
            return {"outcome": {"outcome": "cancelled"}}
        self._requests += 1
        asked = Asked(f"ask-{self._requests}", request, asyncio.get_running_loop().create_future())
        self._asked[asked.id] = asked
        self.tell(asked)
        option_id = await asked.chosen
        if option_id is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": option_id}}

    # -- its end

    async def end(self, *, at_once: bool = False) -> None:
        """End the process by closing its stdin, which is how these agents end with their tools, then by force.
        ``at_once``: in mid turn."""
        await self._connection.close()
        await self.process.stop(eof_s=0.5 if at_once else 2.0, term_s=0.5 if at_once else 1.0)
        if self.way is not None:
            await self.way.close()

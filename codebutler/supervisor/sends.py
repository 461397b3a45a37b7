"""A worker's operations on their way to Slack. They outlive the process that asked for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import json, structs

from codebutler.clock import Clock
from codebutler.config.schema import RepoSettings
from codebutler.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
    ProtocolError,
)
from codebutler.model import Operation, Upload
from codebutler.process.killpoints import reached
from codebutler.protocol.messages import Send, SendFailed, Sent
from codebutler.supervisor.limits import OPERATION_BYTES, SEND_BYTES_IN_FLIGHT, SENDS_IN_FLIGHT
from codebutler.supervisor.port import Services

RETRY_S = 5.0
# Rounds of the loop until a request is on its way: our task, the sender's, the HTTP client's, and its writing.
HEAD_START = 4
# With more under way than these, Slack's limits are what holds them up.
FEW = 8
OP_ID_CHARS = 100

Answer = Sent | SendFailed


class Sends:
    """One task per operation; the answer goes to whichever process of the worker lives then.

    An answer that finds none is not lost: the next process sends the operation again, as unsure.
    """

    def __init__(self, services: Services, clock: Clock) -> None:
        self.answer: Callable[[Answer], None] | None = None
        self._services = services
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, repo: RepoSettings, message: Send) -> None:
        """Begin ``message`` unless the same operation is under way already. Raises ProtocolError."""
        if len(message.op_id) > OP_ID_CHARS:
            raise ProtocolError(f"an operation's id of {len(message.op_id)} characters")
        if message.op_id in self._tasks:
            return
        size_bytes = weight_bytes(message.operation)
        if size_bytes > OPERATION_BYTES + _content_bytes(message.operation):
            # Far beyond what Slack takes, and it would keep us busy before Slack could say so.
            self._tell(SendFailed(op_id=message.op_id, code="msg_too_long"))
            return
        self._bytes += size_bytes
        name = f"send:{repo.name}:{message.op_id}"
        task = asyncio.create_task(self._run(repo, message), name=name)
        self._tasks[message.op_id] = task
        task.add_done_callback(lambda _: self._ended(message.op_id, size_bytes))
        if len(self._tasks) >= SENDS_IN_FLIGHT or self._bytes >= SEND_BYTES_IN_FLIGHT:
            self._room.clear()

    @property
    def full(self) -> bool:
        """Whether the worker has to wait before it may ask for more."""
        return not self._room.is_set()

    async def room(self) -> None:
        """Wait until more may be started. What was started is on its way by then, if nothing holds it up: a worker
        notes a lot down once it has given its answer."""
        for _ in range(HEAD_START if len(self._tasks) <= FEW else 0):
            await asyncio.sleep(0)
        await self._room.wait()

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, op_id: str, size_bytes: int) -> None:
        self._tasks.pop(op_id, None)
        self._bytes -= size_bytes
        self._room.set()

    async def _run(self, repo: RepoSettings, message: Send) -> None:
        try:
            answer = await self._attempt(repo, message)
        except Exception as error:  # noqa: BLE001 - one operation's fault is that operation's answer
            self._services.log(repo.name, "ERR", f"operation failed: {type(error).__name__}: {error}")
            answer = SendFailed(op_id=message.op_id, code="internal_error")
        reached("answer.before")
        self._tell(answer)

    def _tell(self, answer: Answer) -> None:
        if self.answer is not None:
            self.answer(answer)
        reached("answer.after")

    async def _attempt(self, repo: RepoSettings, message: Send) -> Answer:
        unsure = message.unsure
        while True:
            try:
                ts = await self._services.send(repo, message.op_id, message.operation, unsure=unsure)
            except ChatRateLimitedError as error:
                await self._clock.sleep(error.retry_after_s)
            except (ChatUnreachableError, ChatAuthError):
                await self._clock.sleep(RETRY_S)
            except ChatOutcomeUnknownError:
                unsure = True
                await self._clock.sleep(RETRY_S)
            except ChatError as error:
                return SendFailed(op_id=message.op_id, code=error.code)
            else:
                return Sent(op_id=message.op_id, ts=ts)


def weight_bytes(operation: Operation) -> int:
    """How much an operation holds: a file's content as it is, all else as JSON."""
    content_bytes = _content_bytes(operation)
    if isinstance(operation, Upload):
        operation = structs.replace(operation, content=b"")
    return content_bytes + len(json.encode(operation))


def _content_bytes(operation: Operation) -> int:
    return len(operation.content) if isinstance(operation, Upload) else 0

"""A worker's operations on their way to Slack. They outlive the process that asked for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from io import BytesIO

from msgspec import json, structs

from codebutler.config.schema import RepoSettings
from codebutler.errors import ChatError, ChatUnreachableError, ProtocolError
from codebutler.model import Operation, Post, Update, Upload
from codebutler.process.killpoints import reached
from codebutler.protocol.messages import MAX_UPLOAD_BYTES, Send, SendFailed, Sent, UploadPiece
from codebutler.supervisor.limits import BLOCK_COST, OPERATION_BYTES, SEND_BYTES_IN_FLIGHT, SENDS_IN_FLIGHT
from codebutler.supervisor.port import Services
from codebutler.supervisor.testimony import Testimony

# Rounds of the event loop until a request is on its way: our task, the plan, the attempt, and its call.
HEAD_START = 4
# With more under way than these, Slack's limits are what holds them up.
FEW = 8

Answer = Sent | SendFailed


class Sends:
    """One task per operation; the answer goes to whichever process of the worker lives then.

    An answer that finds none is not lost: the next process sends the operation again, as unsure.
    """

    def __init__(self, services: Services, testimony: Testimony) -> None:
        self.answer: Callable[[Answer], None] | None = None
        self._services = services
        self._testimony = testimony
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._bytes = 0
        self._coming: tuple[str, BytesIO] = ("", BytesIO())
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._tasks)

    def piece(self, message: UploadPiece) -> None:
        """Keep the next piece of a file: of one at a time. Raises ProtocolError."""
        op_id, content = self._coming
        if op_id != message.op_id:
            content = BytesIO()
            self._coming = (message.op_id, content)
        if content.tell() + len(message.data) > MAX_UPLOAD_BYTES:
            raise ProtocolError(f"the worker sends a file above {MAX_UPLOAD_BYTES} bytes")
        content.write(message.data)

    def start(self, repo: RepoSettings, message: Send) -> None:
        """Begin ``message``, with the pieces that came before it, unless it is under way already. Of one that is, the
        sender hears that nobody needs it any more."""
        message = self._whole(message)
        if message.op_id in self._tasks:
            if isinstance(message.operation, Post) and message.operation.outdated:
                self._begin(repo, message, f"{message.op_id} outdated")
            return
        size_bytes = weight_bytes(message.operation)
        if size_bytes > OPERATION_BYTES + _content_bytes(message.operation):
            # Far beyond what Slack takes, and it would keep us busy before Slack could say so.
            self._tell(SendFailed(op_id=message.op_id, code="msg_too_long"))
            return
        operation = message.operation
        if isinstance(operation, Post | Update) and (operation.message.card or operation.message.buttons):
            size_bytes *= BLOCK_COST
        self._begin(repo, message, message.op_id, size_bytes)
        if len(self._tasks) >= SENDS_IN_FLIGHT or self._bytes >= SEND_BYTES_IN_FLIGHT:
            self._room.clear()

    def _begin(self, repo: RepoSettings, message: Send, key: str, size_bytes: int = 0) -> None:
        if key in self._tasks:
            return
        work = self._run(repo, message, tells=key == message.op_id)
        task = self._tasks[key] = asyncio.create_task(work, name=f"send:{repo.name}:{key}")
        self._bytes += size_bytes
        task.add_done_callback(lambda _: self._ended(key, size_bytes))

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

    def _whole(self, message: Send) -> Send:
        op_id, content = self._coming
        self._coming = ("", BytesIO())
        if op_id != message.op_id or not isinstance(message.operation, Upload):
            return message
        return structs.replace(
            message, operation=structs.replace(message.operation, content=content.getvalue())
        )

    def _ended(self, key: str, size_bytes: int) -> None:
        self._tasks.pop(key, None)
        self._bytes -= size_bytes
        self._room.set()

    async def _run(self, repo: RepoSettings, message: Send, *, tells: bool) -> None:
        answer: Answer
        try:
            ts = await self._services.send(repo, message.op_id, message.operation, unsure=message.unsure)
            answer = Sent(op_id=message.op_id, ts=ts)
        except ChatUnreachableError:
            return  # we are ending: the worker sends it again in our next life
        except ChatError as error:
            answer = SendFailed(op_id=message.op_id, code=error.code)
        except Exception as error:  # noqa: BLE001 - one operation's fault is that operation's answer
            self._testimony.remark("ERR", f"operation failed: {type(error).__name__}: {error}")
            answer = SendFailed(op_id=message.op_id, code="internal_error")
        if tells:
            reached("answer.before")
            self._tell(answer)

    def _tell(self, answer: Answer) -> None:
        if self.answer is not None:
            self.answer(answer)
        reached("answer.after")


def weight_bytes(operation: Operation) -> int:
    """How much an operation holds: a file's content as it is, all else as JSON."""
    content_bytes = _content_bytes(operation)
    if isinstance(operation, Upload):
        operation = structs.replace(operation, content=b"")
    return content_bytes + len(json.encode(operation))


def _content_bytes(operation: Operation) -> int:
    return len(operation.content) if isinstance(operation, Upload) else 0

"""What is on its way between the parent and one worker: events to it, its operations to the chat, and the files and
threads that it asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from io import BytesIO

from msgspec import json, structs

from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import ChatError, ChatUnreachableError, ProtocolError
from codebutler.domain.model import Operation, Post, Update, Upload
from codebutler.intake.records import Entry
from codebutler.platform.killpoints import reached
from codebutler.protocol.messages import (
    MAX_UPLOAD_BYTES,
    Fetch,
    FetchFailed,
    FetchThread,
    FileChunk,
    FileTranscript,
    Send,
    SendFailed,
    Sent,
    ThreadFetched,
    UploadPiece,
)
from codebutler.supervisor.port import Services
from codebutler.supervisor.reports import (
    BLOCK_COST,
    DELIVERIES_IN_FLIGHT,
    OPERATION_BYTES,
    SEND_BYTES_IN_FLIGHT,
    SENDS_IN_FLIGHT,
    Reports,
)

# Rounds of the event loop until a request is on its way: our task, the plan, the attempt, and its call.
HEAD_START = 4
# With more under way than these, the chat's limits are what holds them up.
FEW = 8
AT_ONCE = 2
MOST_WAITING = 100


# The events one worker still has to take over. They stay here until it has stored them, through any death.
#
# The journal on disk holds them too: losing this object loses nothing.


class Deliveries:
    """In the order of ``seq``; at most ``window`` are on their way to the worker at a time."""

    def __init__(self, window: int = DELIVERIES_IN_FLIGHT) -> None:
        self._window = window
        self._waiting: deque[Entry] = deque()
        self._sent: dict[int, Entry] = {}
        self._known: set[int] = set()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, entry: Entry) -> None:
        """Queue ``entry`` unless it is queued already."""
        if entry.seq not in self._known:
            self._known.add(entry.seq)
            self._waiting.append(entry)
            self._changed.set()

    def again(self) -> None:
        """A new process knows nothing of what its predecessor had not stored: all of it is to be sent."""
        self._waiting = deque(sorted([*self._sent.values(), *self._waiting], key=lambda entry: entry.seq))
        self._sent.clear()
        self._changed.set()

    async def next(self) -> Entry:
        """The next event to send, once there is one and the worker has room for it."""
        while not self._waiting or len(self._sent) >= self._window:
            self._changed.clear()
            await self._changed.wait()
        entry = self._waiting.popleft()
        self._sent[entry.seq] = entry
        return entry

    def settle(self, seq: int) -> bool:
        """The worker has it on disk. False if it was never sent that event: nothing is forgotten then."""
        if self._sent.pop(seq, None) is None:
            return False
        self._known.discard(seq)
        self._changed.set()
        return True


# A worker's operations on their way to the chat. They outlive the process that asked for them.


Answer = Sent | SendFailed


class Sends:
    """One task per operation; the answer goes to whichever process of the worker lives then.

    An answer that finds none is not lost: the next process sends the operation again, as unsure.
    """

    def __init__(self, services: Services, reports: Reports) -> None:
        self._answer: Callable[[Answer], None] | None = None
        self._services = services
        self._reports = reports
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._bytes = 0
        self._coming: tuple[str, BytesIO] = ("", BytesIO())
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._tasks)

    def answer_to(self, process: Callable[[Answer], None] | None) -> None:
        """Whom to answer from now on; None while no process listens."""
        self._answer = process

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
        op_id, content = self._coming
        self._coming = ("", BytesIO())
        if op_id == message.op_id and isinstance(message.operation, Upload):
            whole = structs.replace(message.operation, content=content.getvalue())
            message = structs.replace(message, operation=whole)
        if message.op_id in self._tasks:
            if isinstance(message.operation, Post) and message.operation.outdated:
                self._begin(repo, message, f"{message.op_id} outdated")
            return
        operation = message.operation
        size_bytes = weight_bytes(operation)
        content_bytes = len(operation.content) if isinstance(operation, Upload) else 0
        if size_bytes > OPERATION_BYTES + content_bytes:
            # Far beyond what any chat takes, and it would keep us busy before the chat could say so.
            self._tell(SendFailed(op_id=message.op_id, code="msg_too_long"))
            return
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
        task.add_done_callback(partial(self._ended, key, size_bytes))

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

    def _ended(self, key: str, size_bytes: int, _task: asyncio.Task[None]) -> None:
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
            self._reports.remark("ERR", f"operation failed: {type(error).__name__}: {error}")
            answer = SendFailed(op_id=message.op_id, code="internal_error")
        if tells:
            reached("answer.before")
            self._tell(answer)

    def _tell(self, answer: Answer) -> None:
        if self._answer is not None:
            self._answer(answer)
        reached("answer.after")


def weight_bytes(operation: Operation) -> int:
    """How much an operation holds: a file's content as it is, all else as JSON."""
    if isinstance(operation, Upload):
        return len(operation.content) + len(json.encode(structs.replace(operation, content=b"")))
    return len(json.encode(operation))


# The files and threads one worker process asked for, on their way to it. They end with the process.


class Fetches:
    """``send`` gives the process one message, ``drain`` waits until it has taken enough."""

    def __init__(
        self,
        services: Services,
        reports: Reports,
        send: Callable[[object], None],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        self._services = services
        self._reports = reports
        self._send = send
        self._drain = drain
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, repo: RepoSettings, message: Fetch | FetchThread) -> None:
        """Begin, unless too much is under way already."""
        refusal = ThreadFetched if isinstance(message, FetchThread) else FetchFailed
        if len(self._tasks) >= MOST_WAITING:
            self._send(refusal(request_id=message.request_id, code="too_many"))
            return
        task = asyncio.create_task(self._run(repo, message, refusal), name=f"fetch:{repo.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self,
        repo: RepoSettings,
        message: Fetch | FetchThread,
        refusal: type[ThreadFetched] | type[FetchFailed],
    ) -> None:
        answer: ThreadFetched | FetchFailed | FileTranscript | FileChunk
        try:
            async with self._slots:
                if isinstance(message, FetchThread):
                    answer = await self._thread(repo, message)
                else:
                    answer = await self._file(repo, message)
        except ChatError as error:
            answer = refusal(request_id=message.request_id, code=error.code or "unreachable")
            self._reports.remark("WRN", f"{_what(message)} was not fetched: {error.code or error}")
        except Exception as error:  # noqa: BLE001 - one request's fault is that request's answer
            answer = refusal(request_id=message.request_id, code="internal_error")
            self._reports.remark("ERR", f"fetching {_what(message)} broke: {type(error).__name__}")
        self._send(answer)

    async def _thread(self, repo: RepoSettings, message: FetchThread) -> ThreadFetched:
        said, left_out = await self._services.thread(repo, message.thread_ts, message.before_ts)
        return ThreadFetched(request_id=message.request_id, said=said, left_out=left_out)

    async def _file(self, repo: RepoSettings, message: Fetch) -> FileTranscript | FileChunk:
        request_id = message.request_id

        async def take(piece: bytes) -> None:
            """No faster than the process reads."""
            self._send(FileChunk(request_id=request_id, data=piece))
            await self._drain()

        told = await self._services.fetch(repo, message.file_id, take)
        if told.transcript:
            return FileTranscript(request_id=request_id, text=told.transcript)
        return FileChunk(request_id=request_id, data=b"", last=True, file=told.file)


def _what(message: Fetch | FetchThread) -> str:
    return (
        f"thread {message.thread_ts[:40]}"
        if isinstance(message, FetchThread)
        else f"file {message.file_id[:40]}"
    )

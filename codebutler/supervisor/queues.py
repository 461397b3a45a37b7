"""Everything in transit between the parent and one worker: events and questions to it, its operations to the chat, and
the files and threads that it requested."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import TypeVar

from msgspec import json, structs

from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import ChatError, ChatUnreachableError, CodeButlerError, ProtocolError
from codebutler.domain.model import Operation, Post, Update, Upload
from codebutler.intake.records import Entry
from codebutler.platform.kill_points import reached
from codebutler.platform.tasks import Tasks
from codebutler.protocol.conversations import Question, Told
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
from codebutler.supervisor.limits import (
    BLOCK_COST,
    DELIVERIES_IN_FLIGHT,
    OPERATION_BYTES,
    SEND_BYTES_IN_FLIGHT,
    SENDS_IN_FLIGHT,
    Reports,
)
from codebutler.supervisor.port import Services

# Rounds of the event loop until a request is sent: our task, the plan, the attempt, and its call.
HEAD_START = 4
# Beyond this many, the chat's limits are the bottleneck.
FEW = 8
AT_ONCE = 2
MOST_WAITING = 100
MOST_ASKED = 8
PATIENCE_S = 60.0
"""A worker that sleeps has to start, and git has to look at a large tree."""

T = TypeVar("T", bound=Told)
Answer = Sent | SendFailed


class Deliveries:
    """The events that one worker still has to store, ordered by ``seq``, across its restarts; at most ``window`` are in
    transit to it at a time. They are in the journal on disk too, so losing this object loses nothing."""

    def __init__(self, window: int = DELIVERIES_IN_FLIGHT) -> None:
        self._window = window
        self._waiting: deque[Entry] = deque()
        self._sent: dict[int, Entry] = {}
        self._known: set[int] = set()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, entry: Entry) -> None:
        """Queue ``entry`` unless it is already queued."""
        if entry.seq not in self._known:
            self._known.add(entry.seq)
            self._waiting.append(entry)
            self._changed.set()

    def again(self) -> None:
        """A new process does not know what its predecessor had not stored, so all of it is sent again."""
        self._waiting = deque(sorted([*self._sent.values(), *self._waiting], key=lambda entry: entry.seq))
        self._sent.clear()
        self._changed.set()

    async def next(self) -> Entry:
        """Wait for the next event to send, and for room for it in the worker."""
        while not self._waiting or len(self._sent) >= self._window:
            self._changed.clear()
            await self._changed.wait()
        entry = self._waiting.popleft()
        self._sent[entry.seq] = entry
        return entry

    def settle(self, seq: int) -> bool:
        """The worker has stored the event. False if it was never sent: then nothing is dropped."""
        if self._sent.pop(seq, None) is None:
            return False
        self._known.discard(seq)
        self._changed.set()
        return True


class Questions:
    """What the parent asks the worker: each question waits for its answer, through the worker's sleep and its restarts.
    They change nothing, so each process that becomes ready is asked again."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[Question, asyncio.Future[Told]]] = {}
        self._send: Callable[[object], None] | None = None

    def __len__(self) -> int:
        return len(self._asked)

    def answer_to(self, send: Callable[[object], None] | None) -> None:
        """The process that answers from now on, None if there is none."""
        self._send = send
        if send is not None:
            for question, _ in self._asked.values():
                send(question)

    async def ask(self, question: Question, kind: type[T]) -> T:
        """Wait for the answer, which is of that ``kind``. Raises CodeButlerError if there are too many questions, none
        comes, or another."""
        if len(self._asked) >= MOST_ASKED:
            raise CodeButlerError("the worker has too many requests: try again")
        answer: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._asked[question.request_id] = question, answer
        try:
            if self._send is not None:
                self._send(question)
            async with asyncio.timeout(PATIENCE_S):
                reply = await answer
        except TimeoutError:
            raise CodeButlerError(f"the worker did not answer within {PATIENCE_S:g} s: try again") from None
        finally:
            del self._asked[question.request_id]
        if not isinstance(reply, kind):
            raise CodeButlerError("the worker sent an unexpected answer")
        return reply

    def answered(self, answer: Told) -> None:
        """Give it to who asked; what nobody asked is dropped."""
        waiting = self._asked.get(answer.request_id)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(answer)


class Sends:
    """A worker's operations in transit to the chat, one task each; they outlive the process that requested them.
    The answer goes to the worker's current process.

    If there is none, no answer is lost: the next process sends the operation again, as unsure.
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
        """Where answers go from now on; None while no process is listening."""
        self._answer = process

    async def piece(self, message: UploadPiece) -> None:
        """Store the next piece of a file; one file at a time. Waits until more may be sent. Raises ProtocolError."""
        op_id, content = self._coming
        if op_id != message.op_id:
            content = BytesIO()
            self._coming = (message.op_id, content)
        if content.tell() + len(message.data) > MAX_UPLOAD_BYTES:
            raise ProtocolError(f"the worker sends a file above {MAX_UPLOAD_BYTES} bytes")
        content.write(message.data)
        await self._room.wait()

    async def start(self, repo: RepoSettings, message: Send) -> None:
        """Start ``message``, with the pieces sent before it. If it is already in progress, its earlier sender is told
        that the result is no longer needed.

        Waits until more may be started. By then it is on its way unless it is blocked: after an answer, a worker has a
        lot to write to its store.
        """
        op_id, content = self._coming
        self._coming = ("", BytesIO())
        if op_id == message.op_id and isinstance(message.operation, Upload):
            whole = structs.replace(message.operation, content=content.getvalue())
            message = structs.replace(message, operation=whole)
        key, size_bytes = message.op_id, 0
        if key in self._tasks:
            key = f"{key} outdated"
            if not (isinstance(message.operation, Post) and message.operation.outdated) or key in self._tasks:
                return
        else:
            operation: Operation = message.operation
            content_bytes = 0  # a file counts as it is, everything else as JSON
            if isinstance(operation, Upload):
                content_bytes, operation = len(operation.content), structs.replace(operation, content=b"")
            size_bytes = len(json.encode(operation))
            if size_bytes > OPERATION_BYTES:
                # Far beyond any chat's limit, and it would keep us busy before the chat could refuse it.
                if self._answer is not None:
                    self._answer(SendFailed(op_id=message.op_id, code="msg_too_long"))
                return
            if isinstance(operation, Post | Update) and (operation.message.card or operation.message.buttons):
                size_bytes *= BLOCK_COST
            size_bytes += content_bytes
        work = self._run(repo, message, key, size_bytes)
        self._tasks[key] = asyncio.create_task(work, name=f"send:{repo.name}:{key}")
        self._bytes += size_bytes
        if len(self._tasks) >= SENDS_IN_FLIGHT or self._bytes >= SEND_BYTES_IN_FLIGHT:
            self._room.clear()
        for _ in range(HEAD_START if len(self._tasks) <= FEW else 0):
            await asyncio.sleep(0)
        await self._room.wait()

    @property
    def full(self) -> bool:
        """Whether the worker must wait before it may send more."""
        return not self._room.is_set()

    async def close(self) -> None:
        """Cancel everything in progress."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, repo: RepoSettings, message: Send, key: str, size_bytes: int) -> None:
        answer: Answer
        try:
            ref = await self._services.send(repo, message.op_id, message.operation, unsure=message.unsure)
            answer = Sent(op_id=message.op_id, ref=ref)
        except ChatUnreachableError:
            return  # we are shutting down: the worker sends it again after the restart
        except ChatError as error:
            answer = SendFailed(op_id=message.op_id, code=error.code)
        except Exception as error:  # noqa: BLE001 - one operation's fault is that operation's answer
            self._reports.record("ERR", f"operation failed: {type(error).__name__}: {error}")
            answer = SendFailed(op_id=message.op_id, code="internal_error")
        finally:
            del self._tasks[key]
            self._bytes -= size_bytes
            self._room.set()
        if key == message.op_id:
            reached("answer.before")
            if self._answer is not None:
                self._answer(answer)
            reached("answer.after")


class Fetches:
    """The files and threads that one worker process requested, in transit to it; they end with the process. ``send``
    sends it one message, ``drain`` waits until it has read enough."""

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
        self._tasks = Tasks(lambda name, error: reports.record("ERR", f"{name} failed: {error!r}"))

    def start(self, repo: RepoSettings, message: Fetch | FetchThread) -> None:
        """Start, unless too much is already in progress."""
        refusal = ThreadFetched if isinstance(message, FetchThread) else FetchFailed
        if len(self._tasks) >= MOST_WAITING:
            self._send(refusal(request_id=message.request_id, code="too_many"))
            return
        self._tasks.start(self._run(repo, message, refusal), name=f"fetch:{repo.name}")

    async def close(self) -> None:
        """Cancel everything in progress."""
        await self._tasks.close(0)

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
            self._reports.record("WRN", f"{_what(message)} was not fetched: {error.code or error}")
        except Exception as error:  # noqa: BLE001 - one request's fault is that request's answer
            answer = refusal(request_id=message.request_id, code="internal_error")
            self._reports.record("ERR", f"fetching {_what(message)} broke: {type(error).__name__}")
        self._send(answer)

    async def _thread(self, repo: RepoSettings, message: FetchThread) -> ThreadFetched:
        quoted, left_out = await self._services.thread(repo, message.thread, message.before)
        return ThreadFetched(request_id=message.request_id, said=quoted, left_out=left_out)

    async def _file(self, repo: RepoSettings, message: Fetch) -> FileTranscript | FileChunk:
        request_id = message.request_id

        async def take(piece: bytes) -> None:
            """Send a piece, no faster than the process reads."""
            self._send(FileChunk(request_id=request_id, data=piece))
            await self._drain()

        download = await self._services.fetch(repo, message.file_id, take)
        if download.transcript:
            return FileTranscript(request_id=request_id, text=download.transcript)
        return FileChunk(request_id=request_id, data=b"", last=True, file=download.file)


def _what(message: Fetch | FetchThread) -> str:
    return (
        f"thread {message.thread[:40]}"
        if isinstance(message, FetchThread)
        else f"file {message.file_id[:40]}"
    )

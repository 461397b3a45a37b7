"""The files and threads one worker process asked for, on their way to it. They end with the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from codebutler.config.schema import RepoSettings
from codebutler.errors import ChatError
from codebutler.protocol.messages import (
    Fetch,
    FetchFailed,
    FetchThread,
    FileChunk,
    FileTranscript,
    ThreadFetched,
)
from codebutler.supervisor.port import Services
from codebutler.supervisor.testimony import Testimony

AT_ONCE = 2
MOST_WAITING = 100


class Fetches:
    """``send`` gives the process one message, ``drain`` waits until it has taken enough."""

    def __init__(
        self,
        services: Services,
        testimony: Testimony,
        send: Callable[[object], None],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        self._services = services
        self._testimony = testimony
        self._send = send
        self._drain = drain
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, repo: RepoSettings, message: Fetch | FetchThread) -> None:
        """Begin, unless too much is under way already."""
        refusal = ThreadFetched if isinstance(message, FetchThread) else FetchFailed
        if len(self._tasks) >= MOST_WAITING:
            self._send(refusal(request_id=message.request_id, code="too_many"))
        elif isinstance(message, FetchThread):
            self._begin(self._read(repo, message), f"thread:{repo.name}:{message.thread_ts[:40]}")
        else:
            self._begin(self._run(repo, message), f"fetch:{repo.name}:{message.file_id[:40]}")

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, repo: RepoSettings, message: FetchThread) -> None:
        request_id = message.request_id
        try:
            async with self._slots:
                said, left_out = await self._services.thread(repo, message.thread_ts, message.before_ts)
        except ChatError as error:
            self._send(ThreadFetched(request_id=request_id, code=error.code or "unreachable"))
        except Exception as error:  # noqa: BLE001 - one thread's fault is that thread's answer
            self._testimony.remark("ERR", f"reading a thread broke: {type(error).__name__}")
            self._send(ThreadFetched(request_id=request_id, code="internal_error"))
        else:
            self._send(ThreadFetched(request_id=request_id, said=said, left_out=left_out))

    async def _run(self, repo: RepoSettings, message: Fetch) -> None:
        request_id, file_id = message.request_id, message.file_id
        try:
            async with self._slots:
                take = _Pipe(request_id, self._send, self._drain)
                told = await self._services.fetch(repo, file_id, take)
        except ChatError as error:
            self._testimony.remark("WRN", f"file {file_id[:40]} was not fetched: {error.code or error}")
            self._send(FetchFailed(request_id=request_id, code=error.code))
        except Exception as error:  # noqa: BLE001 - one file's fault is that file's answer
            self._testimony.remark("ERR", f"fetching {file_id[:40]} broke: {type(error).__name__}")
            self._send(FetchFailed(request_id=request_id, code="internal_error"))
        else:
            if told.transcript:
                self._send(FileTranscript(request_id=request_id, text=told.transcript))
            else:
                self._send(FileChunk(request_id=request_id, data=b"", last=True, file=told.file))


class _Pipe:
    """Takes the pieces of one file to the process, no faster than it reads."""

    def __init__(
        self, request_id: str, send: Callable[[object], None], drain: Callable[[], Awaitable[None]]
    ) -> None:
        self._request_id = request_id
        self._send = send
        self._drain = drain

    async def __call__(self, piece: bytes) -> None:
        self._send(FileChunk(request_id=self._request_id, data=piece))
        await self._drain()

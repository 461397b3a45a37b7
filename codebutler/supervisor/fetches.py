"""The files one worker process asked for, on their way to it. They end with the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from codebutler.config.schema import RepoSettings
from codebutler.errors import ChatError
from codebutler.protocol.messages import Fetch, FetchFailed, FileChunk, FileTranscript
from codebutler.supervisor.port import Services

AT_ONCE = 2
MOST_WAITING = 100


class Fetches:
    """``send`` gives the process one message, ``drain`` waits until it has taken enough."""

    def __init__(
        self, services: Services, send: Callable[[object], None], drain: Callable[[], Awaitable[None]]
    ) -> None:
        self._services = services
        self._send = send
        self._drain = drain
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, repo: RepoSettings, message: Fetch) -> None:
        """Begin, unless the same file is on its way already."""
        file_id = message.file_id
        if file_id in self._tasks:
            return
        if len(self._tasks) >= MOST_WAITING:
            self._send(FetchFailed(file_id=file_id, code="too_many"))
            return
        task = asyncio.create_task(self._run(repo, file_id), name=f"fetch:{repo.name}:{file_id[:40]}")
        self._tasks[file_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(file_id, None))

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, repo: RepoSettings, file_id: str) -> None:
        try:
            async with self._slots:
                transcript = await self._services.fetch(
                    repo, file_id, _Pipe(file_id, self._send, self._drain)
                )
        except ChatError as error:
            self._services.log(
                repo.name, "WRN", f"file {file_id[:40]} was not fetched: {error.code or error}"
            )
            self._send(FetchFailed(file_id=file_id, code=error.code))
        except Exception as error:  # noqa: BLE001 - one file's fault is that file's answer
            self._services.log(repo.name, "ERR", f"fetching {file_id[:40]} broke: {type(error).__name__}")
            self._send(FetchFailed(file_id=file_id, code="internal_error"))
        else:
            if transcript:
                self._send(FileTranscript(file_id=file_id, text=transcript))
            else:
                self._send(FileChunk(file_id=file_id, data=b"", last=True))


class _Pipe:
    """Takes the pieces of one file to the process, no faster than it reads."""

    def __init__(
        self, file_id: str, send: Callable[[object], None], drain: Callable[[], Awaitable[None]]
    ) -> None:
        self._file_id = file_id
        self._send = send
        self._drain = drain

    async def __call__(self, piece: bytes) -> None:
        self._send(FileChunk(file_id=self._file_id, data=piece))
        await self._drain()

"""Asks the parent for a file and puts together what comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import uuid4

from codebutler.domain.clock import Clock
from codebutler.domain.model import File
from codebutler.platform.tasks import settled_within
from codebutler.protocol.messages import MAX_FETCH_BYTES, Fetch, FetchFailed, FileChunk, FileTranscript

FETCH_S = 180.0

FileMessage = FileChunk | FileTranscript | FetchFailed


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file's content and what the chat knows of it, or what a voice clip says."""

    content: bytes = b""
    transcript: str = ""
    file: File | None = None


class NotFetchedError(Exception):
    """The file did not come; the message is a word for why."""


@dataclass(slots=True)
class _Coming:
    result: asyncio.Future[Fetched]
    pieces: list[bytes] = field(default_factory=list)
    size_bytes: int = 0


class Fetcher:
    """One per worker."""

    def __init__(self, send: Callable[[object], None], clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._coming: dict[str, _Coming] = {}

    async def fetch(self, file_id: str) -> Fetched:
        """Raises NotFetchedError; also after three minutes of waiting."""
        request_id = uuid4().hex
        coming = self._coming[request_id] = _Coming(asyncio.get_running_loop().create_future())
        self._send(Fetch(request_id=request_id, file_id=file_id))
        try:
            if not await settled_within(self._clock, coming.result, FETCH_S):
                raise NotFetchedError("timeout")
            return coming.result.result()
        finally:
            del self._coming[request_id]

    def take(self, message: FileMessage) -> None:
        """What the parent says about a file; one that nobody waits for any more is let go."""
        coming = self._coming.get(message.request_id)
        if coming is None or coming.result.done():
            return
        match message:
            case FetchFailed(code=code):
                self._fail(coming, code)
            case FileTranscript(text=text):
                coming.result.set_result(Fetched(transcript=text))
            case FileChunk(data=data, last=last, file=file):
                coming.size_bytes += len(data)
                coming.pieces.append(data)
                if coming.size_bytes > MAX_FETCH_BYTES:
                    self._fail(coming, "too_large")
                elif last:
                    coming.result.set_result(Fetched(b"".join(coming.pieces), file=file))

    def _fail(self, coming: _Coming, code: str) -> None:
        coming.pieces.clear()
        coming.result.set_exception(NotFetchedError(code))
        coming.result.exception()  # seen: who waited may have been cancelled

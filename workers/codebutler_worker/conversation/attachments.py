"""A turn's attachments, before it starts: files stored where the agent finds them, voice messages
transcribed.

The thread gets a notice about each that is unavailable, and the turn continues without it.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from codebutler.domain.model import File
from codebutler.protocol.messages import MAX_FETCH_BYTES
from codebutler_worker.internet.remote import RemoteError
from codebutler_worker.media.files import FILES, FetchedFile, NotFetchedError, is_voice, kind_of, save_file
from codebutler_worker.present.progress import left_out, not_transcribed, transcribed, why_not
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.store.rows import AttachmentRow
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork

ALL_S = 600.0
ATTEMPTS = 3
RETRY_S = 2.0
MAX_TRANSCRIPT_CHARS = 50_000

NAME_CHARS = 80
NAME_BYTES = 200
"""A file system allows 255, of which a file's ID takes some."""
_SAFE = re.compile(r"[^\w.+-]+")
_AUDIO_ENDINGS = {
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/webm": ".webm",
    "video/webm": ".webm",
    "audio/ogg": ".ogg",
    "audio/flac": ".flac",
}
# Whisper recognizes formats by these extensions.
_KNOWN_AUDIO = frozenset({".flac", ".m4a", ".mp3", ".mp4", ".mpeg", ".mpga", ".oga", ".ogg", ".wav", ".webm"})


def is_usable(row: AttachmentRow) -> bool:
    """Whether an agent can use it without words: not an untranscribed voice message."""
    return row.state == "transcribed" or (row.state == "stored" and not row.is_voice)


class AttachmentFetcher:
    """Those of one turn, which is at ``place`` and works in ``workdir``."""

    def __init__(self, runtime: Runtime, place: ThreadPlace, workdir: Path) -> None:
        self._runtime = runtime
        self._place = place
        self._workdir = workdir

    async def fetch(self, rows: Sequence[AttachmentRow]) -> tuple[AttachmentRow, ...]:
        """Fetch the wanted ones, in order; returns what is known of them then. Raises StoreError."""
        until_s = self._runtime.clock.monotonic() + ALL_S
        return tuple([await self._fetched(row, until_s) for row in rows])

    async def _fetched(self, row: AttachmentRow, until_s: float) -> AttachmentRow:
        if row.state != "wanted":
            return row
        try:
            if self._runtime.clock.monotonic() > until_s:
                raise NotFetchedError("timeout")
            ready, words = await self._obtain(row)
        except NotFetchedError as error:
            ready, words = replace(row, state="failed"), left_out(row, why_not(str(error)))
        except OSError as error:
            why = f"it cannot be stored: {error.strerror or error}"
            ready, words = replace(row, state="failed"), left_out(row, why)
        await self._keep(ready, words)
        return ready

    async def _obtain(self, row: AttachmentRow) -> tuple[AttachmentRow, str]:
        """The file where the agent finds it, and the notice for people."""
        if row.size_bytes > MAX_FETCH_BYTES:
            raise NotFetchedError("too_large")
        fetched = await self._download(row.file_id)
        if fetched.transcript:
            return _transcribed(row, fetched.transcript)
        row = _completed(row, fetched.file)
        if not fetched.content and (row.size_bytes or row.is_voice):
            raise NotFetchedError("empty")
        if not row.is_voice or kind_of(fetched.content) != "audio":
            return replace(await self._stored(row, fetched.content), is_voice=False), ""
        try:
            text = await self._runtime.media.transcribe(audio_name(row.name, row.mimetype), fetched.content)
            return _transcribed(row, text)
        except (RemoteError, NotFetchedError) as error:
            why = str(error) if isinstance(error, RemoteError) else why_not(str(error))
            return await self._stored(row, fetched.content), not_transcribed(why)

    async def _stored(self, row: AttachmentRow, content: bytes) -> AttachmentRow:
        name = f"{row.file_id}-{safe_name(row.name)}"
        path = await asyncio.to_thread(save_file, self._workdir, FILES, name, content)
        return replace(row, state="stored", path=path, size_bytes=len(content))

    async def _download(self, file_id: str) -> FetchedFile:
        """Retries what fails on the way."""
        for _attempt in range(ATTEMPTS - 1):
            try:
                return await self._runtime.fetcher.fetch(file_id)
            except NotFetchedError as error:
                if str(error) != "unreachable":
                    raise
            await self._runtime.clock.sleep(RETRY_S)
        return await self._runtime.fetcher.fetch(file_id)

    async def _keep(self, row: AttachmentRow, words: str) -> None:
        def work(uow: UnitOfWork) -> None:
            uow.attachments.add(row, known="replace")
            if words:
                uow.post(self._place, words)

        await self._runtime.commit(work)


def _completed(row: AttachmentRow, file: File | None) -> AttachmentRow:
    """A file shared from another workspace arrives without name and type."""
    if file is None or row.name:
        return row
    voice = is_voice(file)
    return replace(row, name=file.name, mimetype=file.mimetype, is_voice=voice)


def _transcribed(row: AttachmentRow, text: str) -> tuple[AttachmentRow, str]:
    words = " ".join(text.split())[:MAX_TRANSCRIPT_CHARS]
    if not words:
        raise NotFetchedError("silence")
    return replace(row, state="transcribed", transcript=words), transcribed(words)


def safe_name(name: str, fallback: str = "file") -> str:
    """The name as one harmless path component: no separators, no leading dot or dash, not too long."""
    last = PurePosixPath(unicodedata.normalize("NFC", name).replace("\\", "/")).name
    cleaned = _SAFE.sub("_", last).lstrip("._-").rstrip(".")
    stem, dot, ending = cleaned.rpartition(".")
    if not (stem and len(ending) <= 12):
        stem, ending = cleaned, ""
    ending = f"{dot}{ending}" if ending else ""
    room = NAME_BYTES - len(ending.encode())
    stem = stem[: NAME_CHARS - len(ending)].encode()[:room].decode(errors="ignore")
    return f"{stem}{ending}" or fallback


def audio_name(name: str, mimetype: str) -> str:
    """The clip's name with an extension that a transcription service knows."""
    safe = safe_name(name, "voice")
    if PurePosixPath(safe).suffix.lower() in _KNOWN_AUDIO:
        return safe
    return f"{PurePosixPath(safe).stem}{_AUDIO_ENDINGS.get(mimetype.lower(), '.m4a')}"

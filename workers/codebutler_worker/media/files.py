"""Files of people and agents: requested from the parent, stored in the repository, and read from there for sending; and
what kind of file one is: a name and a declared type are only claims, the first bytes decide.

The repository has hostile writers: nothing follows a link or reads from a directory that agents may not see. What
stores and reads blocks: call it in a thread.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import stat
import unicodedata
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from uuid import uuid4

from msgspec import Struct, field

from codebutler.domain.clock import Clock
from codebutler.domain.model import File
from codebutler.domain.refs import MessageRef
from codebutler.platform.tasks import settled_within
from codebutler.protocol.messages import (
    MAX_FETCH_BYTES,
    Fetch,
    FetchFailed,
    FetchThread,
    FileChunk,
    FileTranscript,
    ThreadFetched,
)
from codebutler_worker.sandbox.destinations import UnsafePathError, open_beneath, regular_file, status_beneath
from codebutler_worker.store.opening import STATE_DIR

FETCH_S = 180.0
THREAD_S = 20.0

FILES = f"{STATE_DIR}/files"
IMAGES = f"{STATE_DIR}/images"
SHARED = (FILES, IMAGES)
MAX_SENT_BYTES = 8 * 2**20

Identity = tuple[int, int]

Kind = Literal["image", "pdf", "text", "audio", "data"]
SNIFF_BYTES = 64 * 1024
_TEXT_CONTROLS = frozenset("\n\r\t\f\v\b\x1b")

_MAGIC: tuple[tuple[bytes, Kind], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image"),
    (b"\xff\xd8\xff", "image"),
    (b"GIF87a", "image"),
    (b"GIF89a", "image"),
    (b"%PDF-", "pdf"),
    (b"ID3", "audio"),
    (b"\xff\xfb", "audio"),
    (b"\xff\xf3", "audio"),
    (b"\xff\xf2", "audio"),
    (b"OggS", "audio"),
    (b"fLaC", "audio"),
    (b"\x1aE\xdf\xa3", "audio"),  # Matroska and WebM
)
# In RIFF and ISO media files the type follows a length.
_BOXED_MAGIC: tuple[tuple[bytes, bytes, Kind], ...] = (
    (b"RIFF", b"WEBP", "image"),
    (b"RIFF", b"WAVE", "audio"),
)
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"avif", b"mif1"})


class FetchedFile(Struct, frozen=True):
    """A file's content and what the chat knows about it, or the text of a voice clip."""

    content: bytes = b""
    transcript: str = ""
    file: File | None = None


class NotFetchedError(Exception):
    """The file did not arrive; the message is a code for the reason."""


class _PendingFetch(Struct):
    result: asyncio.Future[Any]
    pieces: list[bytes] = field(default_factory=list)
    size_bytes: int = 0


class Fetcher:
    """Asks the parent for files and threads. One per worker."""

    def __init__(self, send: Callable[[object], None], clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._pending: dict[str, _PendingFetch] = {}

    async def fetch(self, file_id: str) -> FetchedFile:
        """Raises NotFetchedError, also after three minutes."""
        request = Fetch(request_id=uuid4().hex, file_id=file_id)
        found: FetchedFile | None = await self._request(request, FETCH_S)
        if found is None:
            raise NotFetchedError("timeout")
        return found

    async def read(self, thread: MessageRef, before: MessageRef) -> ThreadFetched:
        """The thread's messages before that one; ``code`` says why there are none, also after 20 seconds."""
        request = FetchThread(request_id=uuid4().hex, thread=thread, before=before)
        return await self._request(request, THREAD_S) or ThreadFetched(
            request_id=request.request_id, code="timeout"
        )

    async def _request(self, request: Fetch | FetchThread, limit_s: float) -> Any:
        """The answer; None if there is none in time."""
        pending = self._pending[request.request_id] = _PendingFetch(
            asyncio.get_running_loop().create_future()
        )
        self._send(request)
        try:
            in_time = await settled_within(self._clock, pending.result, limit_s)
            return pending.result.result() if in_time else None
        finally:
            del self._pending[request.request_id]

    def on_message(self, message: FileChunk | FileTranscript | FetchFailed | ThreadFetched) -> None:
        """Handle the parent's answer, or a part of it; dropped if nobody is waiting for it any more."""
        pending = self._pending.get(message.request_id)
        if pending is None or pending.result.done():
            return
        match message:
            case ThreadFetched():
                pending.result.set_result(message)
            case FetchFailed(code=code):
                self._fail(pending, code)
            case FileTranscript(text=text):
                pending.result.set_result(FetchedFile(transcript=text))
            case FileChunk(data=data, last=last, file=file):
                pending.size_bytes += len(data)
                pending.pieces.append(data)
                if pending.size_bytes > MAX_FETCH_BYTES:
                    self._fail(pending, "too_large")
                elif last:
                    pending.result.set_result(FetchedFile(b"".join(pending.pieces), file=file))

    def _fail(self, pending: _PendingFetch, code: str) -> None:
        pending.pieces.clear()
        pending.result.set_exception(NotFetchedError(code))
        pending.result.exception()  # mark as retrieved: the waiting task may have been cancelled


def save_file(repo: Path, directory: str, name: str, content: bytes) -> str:
    """Write ``content`` to ``directory`` (FILES or IMAGES) under ``name``, replacing an existing file; returns the path
    below ``repo``. Raises OSError, and UnsafePathError for a directory that is a link."""
    at = open_beneath(repo, directory, os.O_RDONLY | os.O_DIRECTORY)
    temporary = f".{secrets.token_hex(8)}.part"
    try:
        owner = os.fstat(at)
        file = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at
        )
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(content)
                if os.geteuid() == 0:
                    os.fchown(file, owner.st_uid, owner.st_gid)
            # Renaming replaces a link itself instead of following it.
            os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            os.unlink(temporary, dir_fd=at)
            raise
    finally:
        os.close(at)
    return f"{directory}/{name}"


def forget_files(repo: Path, before_s: float) -> int:
    """Remove the files in FILES and IMAGES last modified before ``before_s`` (seconds since the epoch); returns how
    many. Files that cannot be removed stay."""
    return sum(_forget_in(repo, directory, before_s) for directory in SHARED)


def _forget_in(repo: Path, directory: str, before_s: float) -> int:
    try:
        at = open_beneath(repo, directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return 0
    removed = 0
    try:
        with os.scandir(at) as entries:
            for entry in entries:
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode) and found.st_mtime < before_s:
                        os.unlink(entry.name, dir_fd=at)
                        removed += 1
    finally:
        os.close(at)
    return removed


def load_file(repo: Path, path: str, private: Collection[Path] = ()) -> tuple[str, bytes]:
    """The name and content of a file that an agent wants to send. ``path`` is absolute or below ``repo``.

    Raises UnsafePathError for a file elsewhere, in ``private`` or in the private part of the state directory, for links
    of either kind, pipes, devices, directories and files over MAX_SENT_BYTES; FileNotFoundError and other OSError as
    open(2).
    """
    relative = _relative_path(repo, path)
    _refuse_private(repo, relative, private)
    with regular_file(repo, relative) as file:
        if os.fstat(file.fileno()).st_nlink > 1:
            # It may have another name in a directory that agents may not see.
            raise UnsafePathError(errno.EMLINK, "a hard link", relative)
        content = file.read(MAX_SENT_BYTES + 1)
    if len(content) > MAX_SENT_BYTES:
        raise UnsafePathError(errno.EFBIG, f"larger than {MAX_SENT_BYTES // 2**20} MB", relative)
    return PurePosixPath(relative).name, content


def _relative_path(repo: Path, path: str) -> str:
    pure = PurePosixPath(path)
    if pure.is_absolute():
        if not pure.is_relative_to(repo):
            raise UnsafePathError(errno.EXDEV, "outside the repository", path)
        pure = pure.relative_to(repo)
    parts = [part for part in pure.parts if part != "."]
    if not parts or ".." in parts or any(not part.isprintable() for part in parts):
        raise UnsafePathError(errno.EXDEV, "not a path below the repository", path)
    return "/".join(parts)


def _refuse_private(repo: Path, relative: str, private: Collection[Path]) -> None:
    """By identity, not by name: a file system may not distinguish ``.codebutler`` and ``.CodeButler``."""
    forbidden = {_identity(repo, STATE_DIR), _identity(repo, ".git"), *map(_path_identity, private)} - {None}
    allowed = {_identity(repo, shared) for shared in SHARED} - {None}
    steps = [str(step) for step in reversed(PurePosixPath(relative).parents) if str(step) != "."]
    identities = [_identity(repo, step) for step in [*steps, relative]]
    # Shared directories are inside private ones, so only a private one further down the path forbids access.
    last_allowed = max((place for place, step in enumerate(identities) if step in allowed), default=-1)
    if any(step in forbidden for step in identities[last_allowed + 1 :]):
        raise UnsafePathError(errno.EACCES, "private", relative)


def _identity(repo: Path, relative: str) -> Identity | None:
    with suppress(NotADirectoryError):
        if (found := status_beneath(repo, relative)) is not None:
            return found.st_dev, found.st_ino
    return None


def _path_identity(path: Path) -> Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def kind_of(content: bytes) -> Kind:
    """The kind of the content; "data" is everything else: archives, databases, programs."""
    for magic, kind in _MAGIC:
        if content.startswith(magic):
            return kind
    for outer, inner, kind in _BOXED_MAGIC:
        if content.startswith(outer) and content[8:12] == inner:
            return kind
    if content[4:8] == b"ftyp":
        return "image" if content[8:12] in _HEIF_BRANDS else "audio"
    return "text" if _is_text(content) else "data"


def is_voice(file: File) -> bool:
    """Whether it is a voice message: a clip of the chat's own recorder, whatever its type, or any sound."""
    return file.is_voice or file.mimetype.lower().startswith("audio/")


def _is_text(content: bytes) -> bool:
    head = content[:SNIFF_BYTES]
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True  # UTF-16, as some editors write it
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The sample may end inside a character; any other error means it is not UTF-8.
        if len(head) < SNIFF_BYTES or error.start < len(head) - 3:
            return _is_latin(head)
        text = head[: error.start].decode("utf-8")
    return all(unicodedata.category(char) != "Cc" or char in _TEXT_CONTROLS for char in text)


def _is_latin(head: bytes) -> bool:
    """Whether it is an old one-byte encoding, which can only be told by its control characters."""
    return all(byte >= 0x20 or chr(byte) in _TEXT_CONTROLS for byte in head)

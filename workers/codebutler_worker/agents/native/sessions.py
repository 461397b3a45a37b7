"""Where the native agent's sessions are kept: ``.codebutler/native/<session>.jsonl``, mode 0600, which agents do not
see. Each step is appended as it happens, so that a killed worker loses nothing but what was just going on."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

from codebutler.domain.errors import StoreError
from codebutler_worker.agents.native.history import History, Opened, Record, line, read
from codebutler_worker.sandbox.destinations import make_beneath, remove_old
from codebutler_worker.store.state_dir import STATE_DIR

DIRECTORY = "native"
SESSION = re.compile(r"native-[0-9a-f]{32}")
MAX_BYTES = 256 * 2**20
SECONDS_A_DAY = 86_400


class Journal:
    """One session's open file."""

    def __init__(self, descriptor: int, session_id: str) -> None:
        self.session_id = session_id
        self._descriptor: int | None = descriptor

    def append(self, records: Iterable[Record]) -> None:
        """Write them in one go. Blocking. Raises StoreError for a full or failing disk."""
        data = memoryview(b"".join(line(record) for record in records))
        try:
            while data and self._descriptor is not None:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            raise StoreError(f"the agent's session cannot be kept: {error.strerror}: make room") from error

    def close(self) -> None:
        """Close the file. May be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class Sessions:
    """The sessions of one repository. Blocking; call it in a thread."""

    def __init__(self, repo: Path, retention_days: int) -> None:
        self._repo = repo
        self._retention_s = retention_days * SECONDS_A_DAY
        self._swept_s = 0.0

    def begin(self, at: str, now_s: float) -> Journal:
        """A new session. Removes what is too old, once a day. Raises StoreError."""
        session_id = f"native-{uuid4().hex}"
        with self._directory() as directory:
            if now_s - self._swept_s > SECONDS_A_DAY:
                self._swept_s = now_s
                remove_old(directory, ".jsonl", now_s - self._retention_s)
            journal = Journal(_open(directory, session_id, os.O_CREAT | os.O_EXCL), session_id)
        journal.append([Opened(at)])
        return journal

    def resume(self, session_id: str) -> tuple[Journal, History] | None:
        """A session that was begun earlier, None if it is not there any more. Raises StoreError."""
        if not SESSION.fullmatch(session_id):
            return None
        with self._directory() as directory:
            try:
                descriptor = _open(directory, session_id, 0)
            except StoreError:
                return None
        history = read(_content(descriptor))
        if history is None:
            os.close(descriptor)
            return None
        return Journal(descriptor, session_id), history

    @contextlib.contextmanager
    def _directory(self) -> Iterator[int]:
        """A descriptor of the directory, made if it is missing; no step of the way may be a link."""
        try:
            found = make_beneath(self._repo, STATE_DIR, DIRECTORY)
        except OSError as error:
            raise StoreError(f"the agent's session cannot be kept: {error.strerror or error}") from error
        try:
            yield found
        finally:
            os.close(found)


def _open(directory: int, session_id: str, flags: int) -> int:
    flags |= os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(f"{session_id}.jsonl", flags, 0o600, dir_fd=directory)
    except OSError as error:
        raise StoreError(f"the agent's session cannot be kept: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError("the agent's session cannot be kept: it is no file")
    return descriptor


def _content(descriptor: int) -> bytes:
    """All of it; a last line that is only half there gets its end, so that the next one begins anew."""
    size = os.fstat(descriptor).st_size
    if size > MAX_BYTES:
        return b""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        content = file.read()
    if content and not content.endswith(b"\n"):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\n")
    return content

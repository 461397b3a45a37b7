"""The chain of the audit log: what a line is, and whether all of them are there.

``prev`` is the SHA-256 (hex) of the previous line without its newline, "" in the first: that shows that a line was
changed, removed or inserted. The digest of the last line that was synced is kept in ``audit.head`` beside the log:
that shows that its end was. Whoever may write both can forge both: a record against them belongs on another machine.

A file that was put aside expires. A line in the chain names the digest of its last line before it is deleted: the
oldest file that is kept may begin there and nowhere else.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from codebutler.domain.model import ButtonClicked, Command, Event, Prompt, Request

# What stands in the audit log: acts, made of the chat's events.

# So much of what was refused is kept.
TEXT_CHARS = 500
KIND_CHARS = 100


class AuditAct(Struct, frozen=True, kw_only=True):
    """What was executed or refused. ``thread``: its ts, "" for none."""

    kind: str
    user: str
    channel: str
    text: str
    decision: str
    thread: str = ""
    exit_code: int | None = None
    duration_s: float | None = None


def kind_of(event: Event, request: Request) -> str:
    """The audit log's word for what was asked."""
    if isinstance(event, ButtonClicked):
        return f"button {event.action_id}"
    if isinstance(request, Command):
        return f"command {request.name}"
    if isinstance(request, Prompt):
        return f"prompt {request.prefix}" if request.prefix else "prompt"
    return type(event).__name__


def act_of(event: Event, kind: str, decision: str) -> AuditAct:
    """What an event of the chat asked for."""
    return AuditAct(
        user=event.user,
        channel=event.channel,
        thread=str(getattr(event, "thread_ts", None) or getattr(event, "ts", "")),
        kind=kind,
        text=getattr(event, "text", "") or getattr(event, "words", ""),
        decision=decision,
    )


def shortened(act: AuditAct) -> AuditAct:
    """The refused act with the beginning of its text; the digest proves which text it was."""
    kind, text = act.kind[:KIND_CHARS], act.text
    if len(text) > TEXT_CHARS:
        digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
        text = f"{text[:TEXT_CHARS]}… ({len(text)} characters, SHA-256 {digest})"
    return structs.replace(act, kind=kind, text=text)


OURS = "audit"
"""The kind of a line in which the log speaks of itself."""
TORN = "torn"
"""The decision of a line that says: the one before was cut short by a crash."""
CUT = "cut"
"""The decision of a line that says: lines before this one were taken away."""
EXPIRED = "expired"
"""The decision of a line that says: a file ended with the digest in the text, and was deleted for its age."""
_ROTATED = re.compile(r"\.(\d{6})\.jsonl$")
_DIGEST = re.compile(rb"[0-9a-f]{64}")


class AuditLine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the log. ``time``: ISO 8601, UTC."""

    time: str
    user: str
    channel: str
    thread: str
    kind: str
    text: str
    decision: str
    exit_code: int | None
    duration_s: float | None
    prev: str


class AuditHead:
    """The digest of the last line that is surely on the disk, beside the log at ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_suffix(".head")

    def read(self) -> str:
        """ "" if there is none, or none that can be read."""
        with suppress(OSError):
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                found = os.pread(fd, 64, 0)
            finally:
                os.close(fd)
            return found.decode() if _DIGEST.fullmatch(found) else ""
        return ""

    def write(self, digest: str) -> None:
        """Keep another one. A disk that does not take it leaves an older one, which is in the log, too."""
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self._path, flags, 0o600)
            try:
                os.pwrite(fd, f"{digest}\n".encode(), 0)
            finally:
                os.close(fd)


@dataclass(frozen=True, slots=True)
class Break:
    """The first line (from 1) that does not fit the one before; ``cut``: before which, or after which, lines were taken
    away."""

    path: Path
    line: int
    cut: bool = False


def rotated(path: Path) -> list[Path]:
    """The full files that were put aside, oldest first."""
    return sorted(
        (each for each in path.parent.glob(f"{path.stem}.*.jsonl") if _ROTATED.search(each.name)),
        key=number_of,
    )


def number_of(path: Path) -> int:
    """Which of the files that were put aside it is, from 1."""
    match = _ROTATED.search(path.name)
    return int(match[1]) if match else 0


def expired(path: Path, before: str) -> list[tuple[Path, str]]:
    """The full files, oldest first, whose last line is from before a time (ISO 8601, UTC), and that line's digest.
    Raises OSError."""
    found = []
    for file in rotated(path):
        with file.open("rb") as lines:
            last = deque(lines, maxlen=1)
        line = _decode(last[0]) if last else None
        if line is None or line.time >= before:
            break
        found.append((file, digest_of(last[0].removesuffix(b"\n"))))
    return found


def verify(path: Path) -> Break | None:
    """The first break of the chain over all its files, None if there is none. Raises OSError."""
    head = AuditHead(path).read()  # first: the log may grow meanwhile
    walk = _Walk(head)
    files = (*rotated(path), path)
    for file in files:
        if (broken := walk.through(file)) is not None:
            return broken
    if not walk.begins_well:
        return Break(files[0], 1)
    return None if walk.head_seen or not head else Break(path, walk.lines, cut=True)


def holds(path: Path, digest: str) -> bool:
    """Whether a line with this digest is in the log, or in the newest file that was put aside. Raises OSError."""
    for file in (path, *rotated(path)[-1:]):
        with file.open("rb") as lines:
            if any(digest_of(raw.removesuffix(b"\n")) == digest for raw in lines):
                return True
    return False


class _Walk:
    """Along the chain, one file after the other."""

    def __init__(self, head: str) -> None:
        self._head = head
        self._begin: str | None = None
        self._prev = ""
        self._expired = {""}
        self.head_seen = False
        self.lines = 0

    @property
    def begins_well(self) -> bool:
        """Whether the first line is the chain's first, or follows a file that the chain knows to have expired."""
        return self._begin is None or self._begin in self._expired

    def through(self, path: Path) -> Break | None:
        """An unreadable line is accepted only where the next one is the note of a crash."""
        unreadable = self.lines = 0
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                line = _decode(raw)
                if unreadable and (line is None or line.decision != TORN):
                    return Break(path, unreadable)
                if line is None:
                    unreadable = number
                    self._begin = self._begin or ""
                elif line.decision == CUT:
                    return Break(path, number, cut=True)
                elif line.prev != self._prev and self._begin is not None:
                    return Break(path, unreadable or number)
                else:
                    unreadable = 0
                    self._note(line)
                self._prev = digest_of(raw.removesuffix(b"\n"))
                self.head_seen = self.head_seen or self._prev == self._head
                self.lines = number
        return Break(path, unreadable) if unreadable else None

    def _note(self, line: AuditLine) -> None:
        if self._begin is None:
            self._begin = line.prev
        if line.kind == OURS and line.decision == EXPIRED:
            self._expired.add(line.text.rpartition(" ")[2])


def digest_of(line: bytes) -> str:
    """What the next line holds of this one."""
    return hashlib.sha256(line).hexdigest()


def _decode(raw: bytes) -> AuditLine | None:
    if not raw.endswith(b"\n"):
        return None
    try:
        return msgspec.json.decode(raw, type=AuditLine)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

"""The chain of the audit log: the format of a line, and whether all lines are there.

``prev`` is the SHA-256 (hex) of the previous line without its newline, "" in the first: it shows that a line was
changed, removed or inserted. The digest of the last synced line is stored in ``audit.head`` next to the log: it shows
that the end was cut. Anybody who may write both can forge both; protection against them needs a copy on another
machine.

A rotated file expires. Before it is deleted, a line in the chain records the digest of its last line: the oldest
remaining file may start there and nowhere else.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from codebutler.domain.model import ButtonClicked, Command, Event, Prompt, Request
from codebutler.domain.refs import ConversationRef, PersonRef

# How much of a refused text is kept.
TEXT_CHARS = 500
KIND_CHARS = 100
OURS = "audit"
"""The kind of a line about the log itself."""
TORN = "torn"
"""The decision of a line that says: a crash cut the line before."""
CUT = "cut"
"""The decision of a line that says: lines before this one were removed."""
_ROTATED = re.compile(r"\.(\d{6})\.jsonl$")
_DIGEST = re.compile(rb"[0-9a-f]{64}")


class AuditAct(Struct, frozen=True, kw_only=True):
    """What was executed or refused. ``thread``: its ref, "" for none."""

    kind: str
    user: PersonRef
    channel: ConversationRef
    text: str
    decision: str
    thread: str = ""
    exit_code: int | None = None
    duration_s: float | None = None


def act_of(event: Event, request: Request, decision: str) -> AuditAct:
    """The act that an event of the chat requested."""
    if isinstance(event, ButtonClicked):
        kind = f"button {event.action_id}"
    elif isinstance(request, Command):
        kind = f"command {request.name}"
    elif isinstance(request, Prompt):
        kind = f"prompt {request.prefix}" if request.prefix else "prompt"
    else:
        kind = type(event).__name__
    return AuditAct(
        user=event.user,
        channel=event.channel,
        thread=str(getattr(event, "thread", None) or getattr(event, "ref", "")),
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


EXPIRED = "expired"
"""The decision of a line that says: a file ended with the digest in the text, and was deleted because of its age."""


class AuditLine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the log. ``time``: ISO 8601, UTC."""

    time: str
    user: PersonRef
    channel: ConversationRef
    thread: str
    kind: str
    text: str
    decision: str
    exit_code: int | None
    duration_s: float | None
    prev: str


def head_file(path: Path) -> Path:
    """Where the digest of the last line known to be on disk is stored, next to the log at ``path``."""
    return path.with_suffix(".head")


def head_of(path: Path) -> str:
    """The digest in the head of the log at ``path``; "" if it is missing or unreadable."""
    with suppress(OSError):
        fd = os.open(head_file(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            found = os.pread(fd, 64, 0)
        finally:
            os.close(fd)
        return found.decode() if _DIGEST.fullmatch(found) else ""
    return ""


class Break(Struct, frozen=True):
    """The first line (from 1) that does not match the one before; ``cut``: lines were removed before it or, at the end,
    after it."""

    path: Path
    line: int
    cut: bool = False


def rotated(path: Path) -> list[Path]:
    """The rotated files, oldest first."""
    return sorted(
        (each for each in path.parent.glob(f"{path.stem}.*.jsonl") if _ROTATED.search(each.name)),
        key=number_of,
    )


def number_of(path: Path) -> int:
    """The number of a rotated file, from 1."""
    match = _ROTATED.search(path.name)
    return int(match[1]) if match else 0


def expired(path: Path, before: str) -> list[tuple[Path, str]]:
    """The full files, oldest first, whose last line is older than ``before`` (ISO 8601, UTC), and that line's digest.
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
    """The first break of the chain across all its files, None if there is none. Raises OSError."""
    head = head_of(path)  # first, since the log may grow meanwhile
    walk = _Walk(head)
    files = (*rotated(path), path)
    for file in files:
        if (broken := walk.through(file)) is not None:
            return broken
    if not walk.begins_well:
        return Break(files[0], 1)
    return None if walk.head_seen or not head else Break(path, walk.lines, cut=True)


def holds(path: Path, digest: str) -> bool:
    """Whether a line with this digest is in the log, or in the newest rotated file. Raises OSError."""
    for file in (path, *rotated(path)[-1:]):
        with file.open("rb") as lines:
            if any(digest_of(raw.removesuffix(b"\n")) == digest for raw in lines):
                return True
    return False


class _Walk:
    """Walks along the chain, one file after the other."""

    def __init__(self, head: str) -> None:
        self._head = head
        self._begin: str | None = None
        self._prev = ""
        self._expired = {""}
        self.head_seen = False
        self.lines = 0

    @property
    def begins_well(self) -> bool:
        """Whether the first line starts the chain, or follows a file recorded as expired."""
        return self._begin is None or self._begin in self._expired

    def through(self, path: Path) -> Break | None:
        """An unreadable line is accepted only if the next one records a crash."""
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
    """The digest that the next line stores of this one."""
    return hashlib.sha256(line).hexdigest()


def _decode(raw: bytes) -> AuditLine | None:
    if not raw.endswith(b"\n"):
        return None
    try:
        return msgspec.json.decode(raw, type=AuditLine)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

"""Past sessions of Claude Code and Kimi Code in their own files (Claude Code 2.1.328, Kimi Code 2.1.0).

Agents write there too, so no link is followed, and the text in the files is untrusted: redact and escape it
before showing it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from codebutler.domain.errors import CodeButlerError
from codebutler.platform.files import open_regular

T = TypeVar("T")

NAME_CHARS = 200
"""The longest directory name of sessions that is not a hash (Claude Code 2.1.328)."""
LISTED_BYTES, READ_BYTES = 2 * 2**20, 128 * 2**20
"""Bytes of a session's record: for a list, and when it is read whole."""
MAX_LISTED = 50
"""The newest sessions of an agent that a list considers."""
SHORT_CHARS = 6
"""The shortest prefix of an ID that names a session."""
CLAUDE, KIMI = "claude", "kimi"
_KIMI_ID = re.compile(r"session_[A-Za-z0-9-]{1,80}")
_CLAUDE_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_INJECTED = ("<command-", "<local-command-", "<system-reminder>", "<bash-", "<task-notification>", "Caveat: ")
"""Prefixes of messages that Claude Code writes in a person's name."""
Parsed = tuple[list[str], str, bool]
_CLAUDE_MARKS = (b'"type":"user"', b'"type":"assistant"')
_KIMI_MARKS = (b'"turn.prompt"', b'"content.part"', b'"runtime.set_binding"')


def claude_sessions(claude: Path, workdir: Path) -> Path:
    """Where Claude Code keeps the sessions started in ``workdir``: the path with a dash for each UTF-16 unit
    that is no ASCII letter or digit, so two for an emoji.

    Very long names get a hash we do not know: then the directory of all projects.
    """
    path = re.sub(r"[^\0-\uffff]", "--", os.path.realpath(workdir))
    name = re.sub(r"[^a-zA-Z0-9]", "-", path)
    return claude / "projects" / name if len(name) <= NAME_CHARS else claude / "projects"


def kimi_sessions(code: Path, workdir: Path) -> Path:
    """Where Kimi Code keeps the sessions started in ``workdir``: a slug of its name, and the start of its
    SHA-256."""
    real = os.path.realpath(workdir)
    slug = re.sub(r"[^a-z0-9._-]+", "-", Path(real).name.lower()).strip("-")[:40].strip("-")
    slug = "workspace" if slug in ("", ".", "..") else slug
    return code / "sessions" / f"wd_{slug}_{hashlib.sha256(real.encode()).hexdigest()[:12]}"


class PastSession(Struct, frozen=True):
    """A session: people's messages, oldest first, and the last answer. ``changed_s``: Unix time.

    ``from_terminal``: a person started it in a terminal.
    """

    agent: str
    id: str
    changed_s: float
    prompts: tuple[str, ...] = ()
    answer: str = ""
    from_terminal: bool = False


class SessionFiles(Struct, frozen=True):
    """Where an agent keeps the sessions of a working directory; ``record`` gives a session's record there."""

    agent: str
    directory: Path

    def record(self, session_id: str) -> str:
        """The session's record, relative to the directory."""
        return f"{session_id}.jsonl" if self.agent == CLAUDE else f"{session_id}/agents/main/wire.jsonl"

    def has(self, session_id: str) -> bool:
        """Whether a session of that name exists."""
        try:
            os.close(open_regular(self.directory, self.record(session_id)))
        except OSError:
            return False
        return is_session_id(self.agent, session_id)

    def read(self, session_id: str, limit_bytes: int = READ_BYTES) -> PastSession | None:
        """The session; None if it is missing or cannot be read. Blocking."""
        if not is_session_id(self.agent, session_id):
            return None
        try:
            fd = open_regular(self.directory, self.record(session_id))
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            changed_s = os.fstat(fd).st_mtime
            prompts, answer, from_terminal = _PARSERS[self.agent](_lines(file, limit_bytes))
        return PastSession(self.agent, session_id, changed_s, tuple(prompts), answer, from_terminal)

    def newest(self, limit: int = MAX_LISTED) -> list[PastSession]:
        """The most recently changed sessions, newest first. Blocking."""
        found = []
        with contextlib.suppress(OSError):
            for path in self.directory.iterdir():
                session_id = path.stem if self.agent == CLAUDE else path.name
                with contextlib.suppress(OSError):
                    changed = os.lstat(self.directory / self.record(session_id)).st_mtime
                    found.append((changed, session_id))
        read = (self.read(session_id, LISTED_BYTES) for _, session_id in sorted(found, reverse=True)[:limit])
        return [session for session in read if session is not None]


def is_session_id(agent: str, text: str) -> bool:
    """Whether a session may have this name: it must not lead to another directory or be an option."""
    pattern = _CLAUDE_ID if agent == CLAUDE else _KIMI_ID
    return pattern.fullmatch(text) is not None


def files_of(home: Path, workdir: Path) -> tuple[SessionFiles, ...]:
    """Where each agent keeps the sessions started in ``workdir``; ``home`` is the user's. None for an agent
    whose sessions of different directories cannot be told apart."""
    claude, code = home / ".claude", home / ".kimi-code"
    directory = claude_sessions(claude, workdir)
    claude_files = (SessionFiles(CLAUDE, directory),) if directory != claude / "projects" else ()
    return (*claude_files, SessionFiles(KIMI, kimi_sessions(code, workdir)))


def terminal_sessions(home: Path, workdir: Path) -> list[PastSession]:
    """The sessions that a person started in a terminal in ``workdir``, newest first. Blocking."""
    found = [each for files in files_of(home, workdir) for each in files.newest()]
    sessions = [each for each in found if each.from_terminal and each.prompts]
    return sorted(sessions, key=lambda each: each.changed_s, reverse=True)


def find_session(home: Path, workdir: Path, name: str) -> PastSession:
    """The whole session with that ID, or of ``workdir`` with that prefix. Blocking.

    Raises CodeButlerError if there is none, or more than one.
    """
    text = name.strip().lower()
    for files in files_of(home, workdir):
        if found := files.read(text):
            return found
    prefix = text.removeprefix("session_")
    matches = [
        (files, each.id)
        for files in files_of(home, workdir)
        for each in files.newest()
        if len(prefix) >= SHORT_CHARS and each.id.removeprefix("session_").startswith(prefix)
    ]
    if len(matches) == 1 and (found := matches[0][0].read(matches[0][1])):
        return found
    if matches:
        raise CodeButlerError(f"several sessions here start with {name}: give more of the ID")
    raise CodeButlerError(
        f"no Claude Code or Kimi Code session {name} was started in this repository: "
        "run `codebutler adopt` there to list them"
    )


class _ClaudeLine(msgspec.Struct, rename="camel"):
    """A line of Claude Code's record, as far as it matters here."""

    type: str = ""
    entrypoint: str = ""
    is_sidechain: bool = False
    is_meta: bool = False
    is_compact_summary: bool = False
    message: Mapping[str, Any] = MappingProxyType({})


class _KimiLine(msgspec.Struct, rename="camel"):
    type: str = ""
    runtime_id: str = ""
    input: list[Any] = []
    origin: Mapping[str, Any] = MappingProxyType({})
    event: Mapping[str, Any] = MappingProxyType({})


_CLAUDE_LINES = msgspec.json.Decoder(_ClaudeLine)
_KIMI_LINES = msgspec.json.Decoder(_KimiLine)


def _lines(file: Any, limit_bytes: int) -> Iterator[bytes]:
    """The whole lines within the limit."""
    remaining = limit_bytes
    while remaining > 0 and (line := file.readline(remaining)):
        remaining -= len(line)
        if line.endswith(b"\n"):
            yield line


def _decode(lines: Iterable[bytes], marks: Iterable[bytes], decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
    """The lines that hold one of the marks and can be read."""
    for line in lines:
        if any(mark in line for mark in marks):
            try:
                found = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                continue
            yield found


def _parse_claude(lines: Iterable[bytes]) -> Parsed:
    prompts: list[str] = []
    answer, from_terminal = "", False
    for found in _decode(lines, _CLAUDE_MARKS, _CLAUDE_LINES):
        if found.is_sidechain or found.is_meta or found.is_compact_summary:
            continue
        text = _text(found.message.get("content"))
        if found.type == "user" and text and not text.startswith(_INJECTED):
            from_terminal = from_terminal or (not prompts and found.entrypoint == "cli")
            prompts.append(text)
        elif found.type == "assistant" and text:
            answer = text
    return prompts, answer, from_terminal


def _parse_kimi(lines: Iterable[bytes]) -> Parsed:
    prompts: list[str] = []
    answer, from_terminal = "", True
    for found in _decode(lines, _KIMI_MARKS, _KIMI_LINES):
        if found.type == "runtime.set_binding":
            # Started over the Agent Client Protocol, as ours are.
            from_terminal = from_terminal and not found.runtime_id.startswith("acp:")
        elif found.type == "turn.prompt" and found.origin.get("kind") == "user":
            prompts.append(_text(found.input))
        elif found.type == "context.append_loop_event" and found.event.get("type") == "content.part":
            answer = _text([found.event.get("part")]) or answer
    return [text for text in prompts if text], answer, from_terminal


_PARSERS = MappingProxyType({CLAUDE: _parse_claude, KIMI: _parse_kimi})


def _text(content: Any) -> str:
    """The text of a message: its content, or the texts among its parts."""
    if isinstance(content, str):
        return content.strip()
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping) and part.get("type") == "text"]
    return "\n\n".join(text for text in texts if isinstance(text, str)).strip()

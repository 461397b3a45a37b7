"""The connections of `codebutler chat` and `send --wait` to the supervisor, and what a chat stores for the
next one.

The chat's connection is blocking, for a program that waits for keyboard and socket at once.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from codebutler.cli.chatroom.room import apart
from codebutler.cli.context import talk
from codebutler.cli.output import complain, notice, printable_lines, say
from codebutler.config.paths import Home
from codebutler.domain.errors import CodeButlerError, NotRunningError, ProtocolError
from codebutler.domain.refs import NOWHERE, MessageRef
from codebutler.protocol.control import (
    ChatInput,
    ChatRequest,
    ControlReply,
    Failed,
    Posted,
    Said,
    SendRequest,
)
from codebutler.protocol.control_socket import LINE_LIMIT_BYTES

LOST = "the supervisor has stopped: see `codebutler status`. Your messages are kept and answered when it runs again"
ASKS = "(waiting for your decision: answer in its thread in the chat, or in `codebutler chat`)"
HOW = {
    "stopped": "the run was stopped",
    "refused": "refused: nothing was run",
    "interrupted": "the run was interrupted; answer in its thread whether to continue",
}
DIARY_NAME = "chat.json"
MOST_TYPED = 500
MOST_CHARS = 60_000
"""How many typed messages are kept: the file stays far below the size limit for reading."""


class ChatConnection:
    """One chat's connection, blocking. A context manager."""

    def __init__(self, path: Path, request: ChatRequest) -> None:
        """Raises NotRunningError if no supervisor listens."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._decoder: msgspec.json.Decoder[ControlReply] = msgspec.json.Decoder(ControlReply)
        self._held = bytearray()
        try:
            self._socket.connect(str(path))
        except OSError as error:
            # The socket is missing, left behind by a dead supervisor, or its path is too long.
            self._socket.close()
            raise NotRunningError from error
        self._send(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def enter(self, given: ChatInput) -> None:
        """Raises CodeButlerError if the supervisor is gone."""
        self._send(given)

    def replies(self) -> list[ControlReply]:
        """The received replies; waits for at least one. Raises CodeButlerError if the supervisor refuses or
        is gone."""
        while b"\n" not in self._held:
            try:
                piece = self._socket.recv(2**16)
            except ConnectionError:
                piece = b""
            if not piece:
                raise CodeButlerError(LOST)
            self._held += piece
            if len(self._held) > LINE_LIMIT_BYTES:
                raise ProtocolError("the supervisor's answer is too long")
        whole, _, rest = bytes(self._held).rpartition(b"\n")
        self._held = bytearray(rest)
        return [self._decoded(line) for line in whole.split(b"\n")]

    def _send(self, message: ChatRequest | ChatInput) -> None:
        try:
            self._socket.sendall(msgspec.json.encode(message) + b"\n")
        except ConnectionError as error:
            raise CodeButlerError(LOST) from error

    def _decoded(self, line: bytes) -> ControlReply:
        try:
            reply = self._decoder.decode(line)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"the supervisor's answer cannot be read: {error}") from error
        if isinstance(reply, Failed):
            raise CodeButlerError(reply.text)
        return reply


@dataclass
class WholeAnswer:
    """The answer so far. ``texts`` by message: an edit replaces its message."""

    thread: MessageRef = NOWHERE
    outcome: str = "done"
    texts: dict[str, str] = field(default_factory=dict)

    def show(self) -> None:
        """The answer, its messages in order of their start; without its figures and a program's exit line."""
        for text in self.texts.values():
            answer, aside = apart(text)
            if answer.strip():
                for line in answer.split("\n"):
                    say(line)
            for line in aside.split("\n") if aside.strip() else ():
                notice(line)
        if not self.ok:
            complain(HOW.get(self.outcome, "the run failed"))

    @property
    def ok(self) -> bool:
        """Whether the run was done; otherwise it failed, was stopped, refused or interrupted."""
        return self.outcome == "done"

    def take(self, reply: ControlReply) -> None:
        """Collect a reply; report at once what waits for a decision."""
        match reply:
            case Posted(thread=thread):
                self.thread = thread
            case Said(kind="card", choices=choices, text=text) if choices:
                notice(ASKS)
                for line in printable_lines(text).split("\n"):
                    notice(line)
            case Said(kind="text", ref=ref, text=text):
                self.texts[ref] = text


def ask_once(repo: str, text: str, thread: MessageRef | None = None) -> WholeAnswer:
    """Send ``text`` and wait for its outcome. Raises CodeButlerError."""
    told = WholeAnswer()
    done = talk(SendRequest(repo=repo, text=text, wait=True, thread=thread), told.take)
    told.outcome = done.text
    return told


class Diary(Struct, frozen=True, kw_only=True):
    """``typed``: messages, oldest first. ``threads``: repository name to the ref of its last chat's thread."""

    typed: tuple[str, ...] = ()
    threads: dict[str, MessageRef] = {}

    def with_typed(self, text: str) -> Self:
        """Add a message; drops the oldest."""
        kept = [text, *(each for each in reversed(self.typed) if each != text)][:MOST_TYPED]
        room = MOST_CHARS
        typed: list[str] = []
        for each in kept:
            room -= len(each)
            if room < 0 and typed:
                break
            typed.insert(0, each)
        return msgspec.structs.replace(self, typed=tuple(typed))

    def with_thread(self, repo: str, thread: MessageRef) -> Self:
        """Where the chat with ``repo`` continues."""
        return msgspec.structs.replace(self, threads={**self.threads, repo: thread})


def read_diary(home: Home) -> Diary:
    """The stored notes; none if they are unusable: they are a convenience."""
    try:
        with home.open() as directory:
            return msgspec.json.decode(directory.read(DIARY_NAME) or b"{}", type=Diary)
    except (CodeButlerError, OSError, msgspec.DecodeError):
        return Diary()


def write_diary(home: Home, diary: Diary) -> None:
    """Store it, readable only for the owner (0600). Raises CodeButlerError."""
    with home.open() as directory:
        directory.write(DIARY_NAME, msgspec.json.encode(diary))

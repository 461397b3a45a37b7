"""The connections of `codebutler chat` and `send --wait` to the supervisor, and what a chat stores for the
next one.

The chat's connection is blocking, for a program that waits for keyboard and socket at once.

A chat at a terminal: typed text becomes requests, replies become lines.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from codebutler.cli.chatroom import markdown
from codebutler.cli.chatroom.keyboard import ChatKeyboard, Interrupted, Lines, takes_escapes
from codebutler.cli.chatroom.room import ChatRoom, ShownLine, apart
from codebutler.cli.context import talk
from codebutler.cli.output import complain, notice, printable, printable_lines, say
from codebutler.config.paths import Home
from codebutler.config.programs import RUN
from codebutler.domain.command_help import completions
from codebutler.domain.errors import CodeButlerError, NotRunningError, ProtocolError
from codebutler.domain.refs import NOWHERE, MessageRef
from codebutler.protocol.control import (
    LINE_LIMIT_BYTES,
    ChatInput,
    ChatOpened,
    ChatRequest,
    ControlReply,
    Failed,
    Posted,
    Said,
    SendRequest,
)

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


PROMPT = "you> "
MORE = "...> "
_STYLES: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {"plain": str, "markdown": markdown.rendered, "code": markdown.code, "faint": markdown.faint}
)
STOP = "!stop"
HINT = "Ctrl-C stops the run, or exits; Ctrl-D exits; !help lists commands."


def converse(home: Home, repo: str, *, fresh: bool, past: int) -> None:
    """Chat until the person leaves. Raises CodeButlerError if the supervisor does not run, refuses or ends."""
    kept = read_diary(home)
    thread = None if fresh else kept.threads.get(repo)
    is_smart = takes_escapes(os.environ.get("TERM", ""))
    with ChatConnection(home.socket, ChatRequest(repo=repo, thread=thread, past=past)) as link:
        keyboard = ChatKeyboard(completable(), kept.typed, is_smart=is_smart)
        _Conversation(
            home, repo, link, keyboard, has_colour=is_smart and not os.environ.get("NO_COLOR")
        ).run()


def completable() -> list[str]:
    """Words for Tab completion."""
    prefixes = ("claude", "kimi", "agent", RUN.prefix)
    return [*(f"!{name}" for name, _ in completions()), *(f"{prefix}:" for prefix in prefixes)]


class _Conversation:
    """One chat, from the first line to the last."""

    def __init__(
        self, home: Home, repo: str, link: ChatConnection, keyboard: ChatKeyboard, *, has_colour: bool
    ) -> None:
        self._home = home
        self._repo = repo
        self._link = link
        self._keyboard = keyboard
        self._has_colour = has_colour
        self._room = ChatRoom()
        self._lines = Lines()
        self._heard: deque[ControlReply] = deque()
        self._is_open = False
        self._stopping = False

    def run(self) -> None:
        """Runs until the person leaves."""
        with self._keyboard.taken():
            staying = True
            while staying:
                try:
                    staying = self._turn()
                except Interrupted as interrupted:
                    staying = self._interrupted(interrupted.typed)
        notice(f"Saved in {self._repo}'s channel; `codebutler chat` continues this conversation.")

    def _turn(self) -> bool:
        """One typed line, or one reply; False at the end of file. From the first key to the end of the line
        nothing new is shown: the person is answering what is on the screen."""
        while self._heard and not self._keyboard.is_pressed():
            self._take(self._heard.popleft())
        ready = self._is_open and (self._room.asks or not self._room.is_busy)
        if not self._heard and not self._keyboard.wait(self._link.fileno(), PROMPT if ready else ""):
            self._heard.extend(self._link.replies())
            return True
        line = self._keyboard.line(MORE if self._lines.is_open else PROMPT)
        if line is None:
            return self._ended()
        message = self._lines.add(line)
        while message is None:
            line = self._keyboard.line(MORE)
            message = self._lines.end() if line is None else self._lines.add(line)
        self._say(message)
        return True

    def _ended(self) -> bool:
        """Ctrl-D: leave, and say what continues without us."""
        if self._room.is_busy:
            notice("The run continues; its answer appears in the chat.")
        return False

    def _say(self, message: str) -> None:
        if not message.strip():
            return
        self._keep(message)
        try:
            given = self._room.meaning(message)
        except CodeButlerError as error:
            complain(str(error))
            return
        self._link.enter(given)
        self._stopping = False

    def _interrupted(self, typed: str) -> bool:
        """Ctrl-C: clear the line, stop the run, or leave; False to leave."""
        typed = "\n".join(part for part in (self._lines.end(), typed) if part)
        notice("^C")
        if typed.strip():
            self._keep(typed)
            notice("(not sent; press Up to get it back)")
            return True
        if not self._room.is_busy:
            return False
        if self._stopping:
            notice("Stopping; its thread in the chat shows how it ended.")
            return False
        self._stopping = True
        self._link.enter(self._room.say(STOP))
        notice("(stopping the run; press Ctrl-C again to exit)")
        return True

    def _take(self, reply: ControlReply) -> None:
        for line in self._room.take(reply):
            self._show(line)
        match reply:
            case ChatOpened(agent=agent, thread=thread):
                self._is_open = True
                again = "Continuing your last conversation (--new starts another). " if thread else ""
                notice(f"Connected to {self._repo} ({agent}). {again}{HINT}")
            case Posted(thread=thread):
                self._keep_thread(thread)
        if not self._room.is_busy:
            self._stopping = False

    def _show(self, line: ShownLine) -> None:
        text = printable(line.text)
        if self._has_colour:
            if line.style == "fence":
                return
            text = _STYLES[line.style](text)
        stream = sys.stderr if line.style == "faint" else sys.stdout
        stream.write(f"{text}\n")
        stream.flush()

    def _keep(self, text: str) -> None:
        self._keyboard.remember(text)
        # A full disk must not prevent a chat.
        with suppress(CodeButlerError, OSError):
            write_diary(self._home, read_diary(self._home).with_typed(text))

    def _keep_thread(self, thread: MessageRef) -> None:
        with suppress(CodeButlerError, OSError):
            write_diary(self._home, read_diary(self._home).with_thread(self._repo, thread))

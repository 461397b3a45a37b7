"""A chat at a terminal: its connection to the supervisor, what it stores for the next one, and the conversation: typed
text becomes requests, replies become lines.

The connection is blocking, for a program that waits for keyboard and socket at once.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from codebutler.cli.chatroom import markdown
from codebutler.cli.chatroom.keyboard import ChatKeyboard, Interrupted, MessageLines, supports_escapes
from codebutler.cli.chatroom.state import ChatState, ShownLine
from codebutler.cli.output import notice, print_error, printable
from codebutler.config.paths import Home
from codebutler.config.programs import RUN
from codebutler.domain.command_help import completions
from codebutler.domain.errors import CodeButlerError, NotRunningError, ProtocolError
from codebutler.domain.refs import MessageRef
from codebutler.protocol.control import (
    LINE_LIMIT_BYTES,
    ChatInput,
    ChatOpened,
    ChatRequest,
    ControlReply,
    Failed,
    Posted,
)

SUPERVISOR_STOPPED = (
    "the supervisor has stopped: see `codebutler status`. "
    "Your messages are kept and answered when it runs again"
)
HISTORY_FILE = "chat.json"
MAX_TYPED = 500
MAX_CHARS = 60_000
"""How many typed messages are kept: the file stays far below the size limit for reading."""
PROMPT = "you> "
MORE = "...> "
_STYLES: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {"plain": str, "markdown": markdown.render_line, "code": markdown.code, "faint": markdown.faint}
)
STOP = "!stop"
HINT = "Ctrl-C stops the run, or exits; Ctrl-D exits; !help lists commands."


class ChatConnection:
    """One chat's connection, blocking. A context manager."""

    def __init__(self, path: Path, request: ChatRequest) -> None:
        """Raises NotRunningError if no supervisor listens."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._decoder: msgspec.json.Decoder[ControlReply] = msgspec.json.Decoder(ControlReply)
        self._buffer = bytearray()
        try:
            self._socket.connect(str(path))
        except OSError as error:
            # The socket is missing, left behind by a dead supervisor, or its path is too long.
            self._socket.close()
            raise NotRunningError from error
        self.send(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def replies(self) -> list[ControlReply]:
        """The received replies; waits for at least one. Raises CodeButlerError if the supervisor refuses or
        is gone."""
        while b"\n" not in self._buffer:
            try:
                piece = self._socket.recv(2**16)
            except ConnectionError:
                piece = b""
            if not piece:
                raise CodeButlerError(SUPERVISOR_STOPPED)
            self._buffer += piece
            if len(self._buffer) > LINE_LIMIT_BYTES:
                raise ProtocolError("the supervisor's answer is too long")
        complete, _, remainder = bytes(self._buffer).rpartition(b"\n")
        self._buffer = bytearray(remainder)
        return [self._decode(line) for line in complete.split(b"\n")]

    def send(self, message: ChatRequest | ChatInput) -> None:
        """Raises CodeButlerError if the supervisor is gone."""
        try:
            self._socket.sendall(msgspec.json.encode(message) + b"\n")
        except ConnectionError as error:
            raise CodeButlerError(SUPERVISOR_STOPPED) from error

    def _decode(self, line: bytes) -> ControlReply:
        try:
            reply = self._decoder.decode(line)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"the supervisor's answer cannot be read: {error}") from error
        if isinstance(reply, Failed):
            raise CodeButlerError(reply.text)
        return reply


class ChatHistory(Struct, frozen=True, kw_only=True):
    """``typed``: messages, oldest first. ``threads``: repository name to the ref of its last chat's thread."""

    typed: tuple[str, ...] = ()
    threads: dict[str, MessageRef] = {}

    def with_typed(self, text: str) -> Self:
        """Add a message; drops the oldest."""
        newest = [text, *(each for each in reversed(self.typed) if each != text)][:MAX_TYPED]
        room = MAX_CHARS
        typed: list[str] = []
        for each in newest:
            room -= len(each)
            if room < 0 and typed:
                break
            typed.insert(0, each)
        return msgspec.structs.replace(self, typed=tuple(typed))

    def with_thread(self, repo: str, thread: MessageRef) -> Self:
        """Where the chat with ``repo`` continues."""
        return msgspec.structs.replace(self, threads={**self.threads, repo: thread})


def read_history(home: Home) -> ChatHistory:
    """The stored notes; none if they are unusable: they are a convenience."""
    try:
        with home.open() as directory:
            return msgspec.json.decode(directory.read(HISTORY_FILE) or b"{}", type=ChatHistory)
    except (CodeButlerError, OSError, msgspec.DecodeError):
        return ChatHistory()


def write_history(home: Home, history: ChatHistory) -> None:
    """Store it, readable only for the owner (0600). Raises CodeButlerError."""
    with home.open() as directory:
        directory.write(HISTORY_FILE, msgspec.json.encode(history))


def converse(home: Home, repo: str, *, fresh: bool, past: int) -> None:
    """Chat until the person leaves. Raises CodeButlerError if the supervisor does not run, refuses or ends."""
    history = read_history(home)
    thread = None if fresh else history.threads.get(repo)
    has_escapes = supports_escapes(os.environ.get("TERM", ""))
    with ChatConnection(home.socket, ChatRequest(repo=repo, thread=thread, past=past)) as link:
        keyboard = ChatKeyboard(completion_words(), history.typed, has_escapes=has_escapes)
        _Conversation(
            home, repo, link, keyboard, has_colour=has_escapes and not os.environ.get("NO_COLOR")
        ).run()


def completion_words() -> list[str]:
    """Words for Tab completion."""
    prefixes = ("claude", "kimi", "agent", RUN.prefix)
    return [*(f"!{name}" for name, _ in completions()), *(f"{prefix}:" for prefix in prefixes)]


class _Conversation:
    def __init__(
        self, home: Home, repo: str, link: ChatConnection, keyboard: ChatKeyboard, *, has_colour: bool
    ) -> None:
        self._home = home
        self._repo = repo
        self._link = link
        self._keyboard = keyboard
        self._has_colour = has_colour
        self._state = ChatState()
        self._lines = MessageLines()
        self._replies: deque[ControlReply] = deque()
        self._is_open = False
        self._stopping = False

    def run(self) -> None:
        """Runs until the person leaves."""
        with self._keyboard.take_over():
            staying = True
            while staying:
                try:
                    staying = self._step()
                except Interrupted as interrupted:
                    staying = self._on_interrupt(interrupted.typed)
        notice(f"Saved in {self._repo}'s channel; `codebutler chat` continues this conversation.")

    def _step(self) -> bool:
        """One typed line, or one reply; False at the end of file. From the first key to the end of the line
        nothing new is shown: the person is answering what is on the screen."""
        while self._replies and not self._keyboard.has_key():
            self._on_reply(self._replies.popleft())
        ready = self._is_open and (self._state.needs_decision or not self._state.is_busy)
        if not self._replies and not self._keyboard.wait(self._link.fileno(), PROMPT if ready else ""):
            self._replies.extend(self._link.replies())
            return True
        line = self._keyboard.line(MORE if self._lines.is_open else PROMPT)
        if line is None:
            return self._on_eof()
        message = self._lines.add(line)
        while message is None:
            line = self._keyboard.line(MORE)
            message = self._lines.finish() if line is None else self._lines.add(line)
        self._submit(message)
        return True

    def _on_eof(self) -> bool:
        """Ctrl-D: leave, and say what continues without us."""
        if self._state.is_busy:
            notice("The run continues; its answer appears in the chat.")
        return False

    def _submit(self, message: str) -> None:
        if not message.strip():
            return
        self._remember(message)
        try:
            chat_input = self._state.interpret(message)
        except CodeButlerError as error:
            print_error(str(error))
            return
        self._link.send(chat_input)
        self._stopping = False

    def _on_interrupt(self, typed: str) -> bool:
        """Ctrl-C: clear the line, stop the run, or leave; False to leave."""
        typed = "\n".join(part for part in (self._lines.finish(), typed) if part)
        notice("^C")
        if typed.strip():
            self._remember(typed)
            notice("(not sent; press Up to get it back)")
            return True
        if not self._state.is_busy:
            return False
        if self._stopping:
            notice("Stopping; its thread in the chat shows how it ended.")
            return False
        self._stopping = True
        self._link.send(self._state.new_message(STOP))
        notice("(stopping the run; press Ctrl-C again to exit)")
        return True

    def _on_reply(self, reply: ControlReply) -> None:
        for line in self._state.on_reply(reply):
            self._show(line)
        match reply:
            case ChatOpened(agent=agent, thread=thread):
                self._is_open = True
                again = "Continuing your last conversation (--new starts another). " if thread else ""
                notice(f"Connected to {self._repo} ({agent}). {again}{HINT}")
            case Posted(thread=thread):
                self._remember_thread(thread)
        if not self._state.is_busy:
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

    def _remember(self, text: str) -> None:
        self._keyboard.remember(text)
        # A full disk must not prevent a chat.
        with suppress(CodeButlerError, OSError):
            write_history(self._home, read_history(self._home).with_typed(text))

    def _remember_thread(self, thread: MessageRef) -> None:
        with suppress(CodeButlerError, OSError):
            write_history(self._home, read_history(self._home).with_thread(self._repo, thread))

"""Questions at a terminal. The terminal itself echoes nothing meanwhile, so that a secret shows only as
bullets, also if it is pasted too early."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import sys
import termios
from collections.abc import Collection, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from codebutler.cli.output import is_interactive, notice, printable, warn
from codebutler.config.chats import SECTIONS

if TYPE_CHECKING:
    from codebutler.chat.platform import Prompter

T = TypeVar("T")
BULLET = "•"
# Prefixes of tokens and keys: first those of the chats, then those of services.
SECRET = re.compile(rf"\s*({'|'.join(start for each in SECTIONS for start in each.token_starts)}|sk-)")
MIN_HINTED_CHARS = 20
"""Minimum length of a secret to show its last four characters."""
ENTER, ERASE, KILL, END = "\r\n", "\x7f\x08", "\x15", "\x04"
_LFLAG, _CC = 3, 6


class TypedLine:
    """One line as it is typed. ``feed`` returns what the terminal shows for a key. Pure."""

    def __init__(self, *, hidden: bool) -> None:
        self.text = ""
        self.is_done = False
        self.is_eof = False
        self._hidden = hidden
        self._escape = ""

    def feed(self, key: str) -> str:
        """Take one character."""
        if self._escape or key == "\x1b":
            self._skip(key)
        elif key in ENTER:
            self.is_done = True
            return "\n"
        elif key in ERASE:
            shown, self.text = ("\b \b" if self.text else ""), self.text[:-1]
            return shown
        elif key == KILL:
            shown, self.text = "\b \b" * len(self.text), ""
            return shown
        elif key == END:
            self.is_done = self.is_eof = True
            return "\n"
        elif key.isprintable():
            self.text += key
            return BULLET if self._hidden or SECRET.match(self.text) else key
        return ""

    def _skip(self, key: str) -> None:
        """Arrows and other keys that send a sequence: ESC [ … letter."""
        self._escape += key
        if len(self._escape) > 1 and (key.isalpha() or key == "~") and self._escape != "\x1bO":
            self._escape = ""


class PromptTerminal:
    """The person's terminal: questions on stderr, answers from stdin. A context manager, in which nothing is echoed."""

    is_interactive = True
    tell, warn = staticmethod(notice), staticmethod(warn)

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._saved_mode: list[int | list[bytes | int]] = []

    def __enter__(self) -> Self:
        if os.isatty(self._fd):
            self._saved_mode = termios.tcgetattr(self._fd)
            mode = termios.tcgetattr(self._fd)
            mode[_LFLAG] &= ~(termios.ICANON | termios.ECHO)
            mode[_CC][termios.VMIN] = 1
            termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._saved_mode:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved_mode)

    async def ask(self, question: str, default: str = "") -> str:
        """A line, ``default`` if it is empty. Raises EOFError when the input ends."""
        hint = f" [{default}]" if default else ""
        return await self.until(None, f"{question}{hint}") or default

    async def ask_secret(self, question: str) -> str:
        """A secret, shown as bullets; says how much came. Raises EOFError when the input ends."""
        text = await self.until(None, question, hidden=True)
        if text:
            end = f", ends in …{text[-4:]}" if len(text) >= MIN_HINTED_CHARS else ""
            show(f"   received {len(text)} characters{end}\n")
        return text

    async def until(
        self, other: Coroutine[Any, Any, T] | None, question: str, *, hidden: bool = False
    ) -> str | T:
        """A line, or the result of ``other``, whichever is first. Raises EOFError when the input ends."""
        show(f"{printable(question)}: ")
        typing = _Typing(self._fd, TypedLine(hidden=hidden))
        waiting: set[asyncio.Future[Any]] = {typing.done}
        if other is not None:
            waiting.add(asyncio.ensure_future(other))
        loop = asyncio.get_running_loop()
        loop.add_reader(self._fd, typing.read)
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(self._fd)
            for each in waiting:
                each.cancel()
            if not typing.line.is_done:
                show("\n")
        if typing.line.is_eof:
            raise EOFError
        answer: str | T = done.pop().result()
        return answer


class _Typing:
    def __init__(self, fd: int, line: TypedLine) -> None:
        self.line = line
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._fd = fd
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> None:
        """Take one byte: text after the line belongs to the next question."""
        data = os.read(self._fd, 1)
        for key in self._decoder.decode(data) if data else END:
            show(self.line.feed(key))
        if self.line.is_done and not self.done.done():
            self.done.set_result(self.line.text.strip())


def show(text: str) -> None:
    """Write to the terminal as it is."""
    sys.stderr.write(text)
    sys.stderr.flush()


def ask(question: str, default: str = "") -> str:
    """One question of its own. Raises EOFError when the input ends."""
    with PromptTerminal() as terminal:
        return asyncio.run(terminal.ask(question, default))


def ask_secret(question: str) -> str:
    """The same for a secret, shown as bullets."""
    with PromptTerminal() as terminal:
        return asyncio.run(terminal.ask_secret(question))


def choose(question: str, default: str, choices: Collection[str]) -> str:
    """One of these words, in lower case; asked until it is. Raises EOFError when the input ends."""
    while (answer := ask(question, default).lower()) not in choices:
        notice(f"Answer with one of {', '.join(choices)}.")
    return answer


@contextmanager
def prompter() -> Iterator[Prompter]:
    """The person at the terminal, for as long as needed."""
    from codebutler.chat.platform import Unattended

    if not is_interactive():
        yield Unattended(notice, warn)
        return
    with PromptTerminal() as terminal:
        yield terminal

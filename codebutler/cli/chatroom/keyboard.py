"""The keyboard of a chat: line editing by readline, and a terminal that stays free for output until a key is
pressed.

Until somebody types, the terminal does not echo, and we wait for keyboard and supervisor at once. The first
key starts readline, which reads it from the terminal as if it had always been running.
"""

from __future__ import annotations

import os
import readline
import select
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Literal

PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_LFLAG, _CC = 3, 6
_FENCE = "```"


class Interrupted(Exception):  # noqa: N818 - a key, no failure
    """Ctrl-C. ``typed`` is the line it cleared."""

    def __init__(self, typed: str) -> None:
        super().__init__(typed)
        self.typed = typed


class ChatKeyboard:
    """A person's terminal, on standard input and output. Use it within ``take_over``."""

    def __init__(self, words: Sequence[str], typed: Sequence[str], *, has_escapes: bool) -> None:
        """Tab completes ``words``, Up recalls ``typed``. ``has_escapes``: it understands escapes."""
        self._fd = sys.stdin.fileno()
        self._saved_mode = termios.tcgetattr(self._fd)
        self._words = words
        self._has_escapes = has_escapes
        self._state: Literal["waiting", "typing", "at work"] = "at work"
        self._is_interrupted = False
        self._at_eof = False
        readline.set_auto_history(False)
        for text in typed:
            readline.add_history(text)
        readline.set_completer(self._complete)
        readline.set_completer_delims(" \t\n")
        is_editline = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_editline else "tab: complete")
        if not has_escapes:
            readline.parse_and_bind("set enable-bracketed-paste off")

    @contextmanager
    def take_over(self) -> Iterator[None]:
        """Take over the terminal; it is restored in any case."""
        handlers = {
            signal.SIGINT: signal.signal(signal.SIGINT, self._on_interrupt),
            signal.SIGTERM: signal.signal(signal.SIGTERM, _on_termination),
            signal.SIGHUP: signal.signal(signal.SIGHUP, _on_termination),
        }
        try:
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved_mode)
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def remember(self, text: str) -> None:
        """Up recalls ``text``."""
        readline.add_history(text)

    def wait(self, source: int, prompt: str) -> bool:
        """Wait with ``prompt`` ("" = none) until a key is pressed or ``source``, a descriptor, is readable;
        returns whether it was a key. The line is cleared afterwards. Raises Interrupted."""
        if self._at_eof:
            return True
        self._set_mode(echo=False)
        try:
            self._write(f"{PASTE_ON if self._has_escapes else ''}{prompt}")
            with self._in_state("waiting"):
                ready, _, _ = select.select([self._fd, source], [], [])
            return self._fd in ready
        finally:
            wiped = f"\r{' ' * len(prompt)}\r" if prompt else ""
            self._write(f"{wiped}{PASTE_OFF if self._has_escapes else ''}")

    def has_key(self) -> bool:
        """Whether an unread key has been pressed."""
        return bool(select.select([self._fd], [], [], 0)[0])

    def line(self, prompt: str) -> str | None:
        """A line, None at the end of file. Pasted lines come as one. Raises Interrupted."""
        # Readline echoes only if the terminal did.
        self._set_mode(echo=True)
        lines: list[str] = []
        ended, self._at_eof = self._at_eof, False
        try:
            with self._in_state("typing"):
                while not ended and (not lines or self._is_pasted()):
                    lines.append(input(prompt))
        except EOFError:
            # After a paste the end of the line is still to come.
            self._at_eof = bool(lines)
        except Interrupted as interrupted:
            raise Interrupted("\n".join([*lines, interrupted.typed])) from None
        return "\n".join(lines) if lines else None

    def _is_pasted(self) -> bool:
        """For a terminal that does not mark pastes: text that is already there was not typed."""
        return not self._has_escapes and self.has_key()

    @contextmanager
    def _in_state(self, state: Literal["waiting", "typing"]) -> Iterator[None]:
        """Ctrl-C is handled only here: elsewhere it would lose received text, so it waits."""
        self._state = state
        try:
            if self._is_interrupted:
                self._is_interrupted = False
                raise Interrupted("")
            yield
        finally:
            self._state = "at work"

    def _set_mode(self, *, echo: bool) -> None:
        """Deliver every key at once, with or without echo. Not if Python reads lines without readline. Set
        each time: after a suspension the shell has set modes of its own."""
        if not sys.stdout.isatty():
            return
        mode = termios.tcgetattr(self._fd)
        # Never in line mode: a Ctrl-D that arrives while the terminal assembles lines is no longer a key.
        mode[_LFLAG] &= ~(termios.ICANON | termios.ECHO)
        if echo:
            mode[_LFLAG] |= termios.ECHO
        mode[_CC][termios.VMIN] = 1
        termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()

    def _complete(self, prefix: str, number: int) -> str | None:
        if readline.get_begidx() != 0 or not prefix:
            return None
        found = [word for word in self._words if word.startswith(prefix)]
        return f"{found[number]} " if number < len(found) else None

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._state == "at work":
            self._is_interrupted = True
            return
        raise Interrupted(readline.get_line_buffer() if self._state == "typing" else "")


def _on_termination(number: int, _frame: FrameType | None) -> None:
    # Not the signal's default action, which would leave the terminal without echo.
    sys.exit(128 + number)


def supports_escapes(env_term: str) -> bool:
    """Whether the terminal understands escapes."""
    return os.isatty(sys.stdout.fileno()) and env_term not in ("", "dumb")


class MessageLines:
    """Collects lines until a message is complete. A paste comes as one line with line ends in it."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def is_open(self) -> bool:
        """Whether the message continues."""
        return bool(self._lines)

    def add(self, line: str) -> str | None:
        """The complete message, None if it continues."""
        self._lines.append(line)
        if self._is_incomplete():
            return None
        return self.finish()

    def finish(self) -> str:
        """The lines so far as the message; "" if there are none."""
        message = "\n".join(line.removesuffix("\\") if _continues(line) else line for line in self._lines)
        self._lines = []
        return message

    def _is_incomplete(self) -> bool:
        fences = sum(each.lstrip().startswith(_FENCE) for line in self._lines for each in line.split("\n"))
        return fences % 2 == 1 or _continues(self._lines[-1])


def _continues(line: str) -> bool:
    """Whether the line ends in a backslash that is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1

"""Hears from a shell's output where a command ends. Pure.

Before each prompt the shell writes a mark: a record separator, a word nobody else knows, the number of the command,
its exit code, the directory, a record separator; and one with ``begun`` before it runs a command. Everything else is
what the command wrote.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

SEPARATOR = b"\x1e"
MARK_BYTES = 8192
"""The longest mark: a path has 4096 bytes at most."""
HEAD_BYTES = 64 * 2**10
TAIL_BYTES = 256 * 2**10
LINE_CHARS = 3000
"""Below what a terminal keeps of one line until Enter."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The shell is at its prompt again."""

    number: int
    exit_code: int
    cwd: str


class Listener:
    """Takes what the shell writes, in pieces. ``word`` is the one in its marks."""

    def __init__(self, word: str) -> None:
        self.mark: Mark | None = None
        self.begun = 0
        self._mark = re.compile(rb"\x1e" + word.encode() + rb" (\d+) (\d+|begun) ([^\x1e]*)\x1e")
        self._open = bytearray()
        self._head = bytearray()
        self._tail = bytearray()
        self._skipped = 0

    def feed(self, data: bytes) -> None:
        """Take a piece; ``mark`` is the last mark so far, ``begun`` the number of the last command that was begun."""
        self._open += data
        rest = bytes(self._open)
        while found := self._mark.search(rest):
            self._keep(rest[: found.start()])
            if found[2] == b"begun":
                self.begun = int(found[1])
            else:
                self.mark = Mark(int(found[1]), int(found[2]), found[3].decode(errors="replace"))
            rest = rest[found.end() :]
        at = rest.rfind(SEPARATOR, max(0, len(rest) - MARK_BYTES))
        whole = rest if at < 0 else rest[:at]
        self._keep(whole)
        self._open = bytearray(rest[len(whole) :])

    def forget(self) -> None:
        """Let go of what was heard so far."""
        self._head.clear()
        self._tail.clear()
        self._skipped = 0

    def take(self) -> tuple[str, bool]:
        """What was written since the last time, and whether a flood had to be cut in the middle."""
        cut = self._skipped > 0
        middle = f"\n[… {self._skipped} bytes are left out …]\n".encode() if cut else b""
        text = (bytes(self._head) + middle + bytes(self._tail)).decode(errors="replace")
        self.forget()
        return text, cut

    def _keep(self, data: bytes) -> None:
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[max(0, room) :]
        if (over := len(self._tail) - TAIL_BYTES) > 0:
            del self._tail[:over]
            self._skipped += over


def greeting(word: str, cwd: str) -> bytes:
    """The first line for the shell: no echo, no prompts, and the mark before each."""
    mark = f'printf "\\036{word} %s %s %s\\036" "$__cb_n" "$?" "$PWD"'
    return (
        f"stty -echo; PS1= PS2=; unset HISTFILE; set +H; __cb_n=0; PROMPT_COMMAND='{mark}'; "
        f"cd -- \"$(printf %s '{_encoded(cwd)}' | base64 -d)\" 2>/dev/null\n"
    ).encode()


def spelled(word: str, number: int, command: str) -> bytes:
    """The lines that make the shell run a command: in pieces that no terminal cuts, and so that nothing in it is
    taken for an answer to a program that reads."""
    text = _encoded(command)
    pieces = [text[at : at + LINE_CHARS] for at in range(0, len(text), LINE_CHARS)]
    lines = ["__cb_c="] + [f"__cb_c=$__cb_c'{piece}'" for piece in pieces]
    begun = f"__cb_n={number}; printf '\\036{word} {number} begun \\036'"
    lines.append(f'{begun}; eval "$(printf %s "$__cb_c" | base64 -d)"')
    return "".join(f"{line}\n" for line in lines).encode()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode(errors="replace")).decode()

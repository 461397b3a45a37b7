"""What a chat keeps in the home for the next one: what was typed, and the thread of each repository's last chat."""

from __future__ import annotations

from typing import Self

import msgspec
from msgspec import Struct

from codebutler.config.paths import Home
from codebutler.domain.errors import CodeButlerError

NAME = "chat.json"
MOST_TYPED = 500
MOST_CHARS = 60_000
"""Of all that was typed: the file stays far below what is read of one."""


class Diary(Struct, frozen=True, kw_only=True):
    """``typed``: messages, oldest first. ``threads``: repository name to the ts of its last chat's thread."""

    typed: tuple[str, ...] = ()
    threads: dict[str, str] = {}

    def with_typed(self, text: str) -> Self:
        """One message more; the oldest go."""
        kept = [text, *(each for each in reversed(self.typed) if each != text)][:MOST_TYPED]
        room = MOST_CHARS
        typed: list[str] = []
        for each in kept:
            room -= len(each)
            if room < 0 and typed:
                break
            typed.insert(0, each)
        return msgspec.structs.replace(self, typed=tuple(typed))

    def with_thread(self, repo: str, thread_ts: str) -> Self:
        """Where the chat with ``repo`` goes on."""
        return msgspec.structs.replace(self, threads={**self.threads, repo: thread_ts})


def read(home: Home) -> Diary:
    """What there is; nothing where it cannot be used: it is a convenience."""
    try:
        with home.open() as directory:
            return msgspec.json.decode(directory.read(NAME) or b"{}", type=Diary)
    except (CodeButlerError, OSError, msgspec.DecodeError):
        return Diary()


def write(home: Home, diary: Diary) -> None:
    """Keep it, for the owner's eyes alone (0600). Raises CodeButlerError."""
    with home.open() as directory:
        directory.write(NAME, msgspec.json.encode(diary))

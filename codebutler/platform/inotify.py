"""Changes of names in directories, as the kernel reports them. inotify(7). Linux."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import NamedTuple

IN_MOVED, IN_CREATE, IN_DELETE = 0x40 | 0x80, 0x100, 0x200
IN_OVERFLOW, IN_IGNORED, IN_ONLYDIR, IN_DONT_FOLLOW = 0x4000, 0x8000, 0x1000000, 0x2000000
WATCHED = IN_MOVED | IN_CREATE | IN_DELETE | IN_ONLYDIR | IN_DONT_FOLLOW
HEAD = struct.Struct("iIII")
READ_BYTES = 64 * 2**10


class NameEvent(NamedTuple):
    """A change. ``gone``: the name, or the whole directory, no longer exists. ``unsure``: anything may have happened,
    in any directory. ``whole``: the directory itself is no longer watched."""

    directory: Path | None
    name: str
    gone: bool = False
    whole: bool = False
    unsure: bool = False


class NameWatch:
    """Its ``fd`` is readable when there are events. Raises OSError, also if this user's instances are used up."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = _checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._watches: dict[int, Path] = {}

    def watch(self, directory: Path) -> None:
        """Watch the directory from now on; a second call does nothing. Raises OSError."""
        if directory not in self._watches.values():
            number = self._libc.inotify_add_watch(self.fd, os.fsencode(directory), ctypes.c_uint32(WATCHED))
            self._watches[_checked(number)] = directory

    def read(self) -> list[NameEvent]:
        """What has happened since the last call."""
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return []
        found = []
        for number, mask, name in events(data):
            directory, whole = self._watches.get(number), bool(mask & IN_IGNORED)
            if whole:
                self._watches.pop(number, None)
            found.append(
                NameEvent(
                    directory, name, bool(mask & (IN_DELETE | IN_IGNORED)), whole, bool(mask & IN_OVERFLOW)
                )
            )
        return found

    def close(self) -> None:
        """Stop watching."""
        os.close(self.fd)


def events(data: bytes) -> list[tuple[int, int, str]]:
    """(watch, mask, name) of each event that was read. Pure."""
    found, at = [], 0
    while at + HEAD.size <= len(data):
        watch, mask, _, length = HEAD.unpack_from(data, at)
        name = data[at + HEAD.size : at + HEAD.size + length].rstrip(b"\0")
        found.append((watch, mask, os.fsdecode(name)))
        at += HEAD.size + length
    return found


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)

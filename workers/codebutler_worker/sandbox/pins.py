"""Check that pinned paths stay pinned while a program runs.

A program outside that replaces a file (as `git config` and `git push -u` do) removes what is mounted on it inside: the
kernel detaches mounts from a name that is gone (detach_mounts in fs/namespace.c). From then on the program inside could
write files that make git run programs. So we watch for such a replacement and end the program at once. inotify(7).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import logging
import os
import stat
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

IN_MOVED, IN_CREATE, IN_DELETE = 0x40 | 0x80, 0x100, 0x200
IN_OVERFLOW, IN_IGNORED, IN_ONLYDIR, IN_DONT_FOLLOW = 0x4000, 0x8000, 0x1000000, 0x2000000
WATCHED = IN_MOVED | IN_CREATE | IN_DELETE | IN_ONLYDIR | IN_DONT_FOLLOW
log = logging.getLogger(__name__)
HEAD = struct.Struct("iIII")
READ_BYTES = 64 * 2**10
TOLD = (
    "{name} was replaced from outside while the agent was working, which removed its protection, so the agent was "
    "stopped: check {path} before you run git, then ask again"
)


@dataclass(slots=True)
class PinHold:
    """The paths that must stay in place for one program; a ``fleeting`` one may disappear but not be replaced. ``gone``
    is called for the first that was replaced."""

    watcher: Watcher
    pins: frozenset[Path]
    fleeting: frozenset[Path] = frozenset()
    lifted: str = ""
    gone: Callable[[str], None] | None = None
    seen: dict[Path, tuple[int, ...] | None] = field(default_factory=dict)

    def listen(self, gone: Callable[[str], None]) -> None:
        """Call ``gone`` with one line on a replacement; at once, if it has already happened."""
        self.gone = gone
        if self.lifted:
            gone(self.lifted)

    def look(self) -> None:
        """Compare the paths with the last look."""
        for path in sorted(self.pins):
            now = _told_apart(path)
            was = self.seen.setdefault(path, now)
            if now != was and not (now is None and path in self.fleeting):
                self.lift(path)

    def struck(self, directory: Path | None, mask: int, name: str) -> Path | None:
        """The pin that an event is about, None if none. Pure."""
        for path in sorted(self.pins):
            # After a queue overflow, or if the directory itself is gone, nothing is certain.
            if mask & IN_OVERFLOW:
                return path
            goes = mask & (IN_DELETE | IN_IGNORED)
            if (
                path.parent == directory
                and (mask & IN_IGNORED or path.name == name)
                and not (goes and path in self.fleeting)
            ):
                return path
        return None

    def lift(self, path: Path) -> None:
        """``path`` has been replaced."""
        if not self.lifted:
            self.lifted = TOLD.format(name=path.name, path=path)
            if self.gone is not None:
                self.gone(self.lifted)

    def release(self) -> None:
        """Stop watching: the program has ended. A second call does nothing."""
        self.watcher.release(self)


@dataclass(slots=True)
class Watcher:
    """One for all programs of a sandbox. Holds a descriptor while a program runs.

    inotify instances are limited per user, and agents run as the same user: if they have used them all, this polls
    every ``every_s`` instead. ``polls`` forces that.
    """

    every_s: float = 0.2
    polls: bool = False
    _fd: int = -1
    _looking: asyncio.TimerHandle | None = None
    _watches: dict[int, Path] = field(default_factory=dict)
    _holds: list[PinHold] = field(default_factory=list)

    def hold(self, pins: frozenset[Path], fleeting: frozenset[Path] = frozenset()) -> PinHold:
        """Watch ``pins`` from now on. Those in ``fleeting`` may disappear but not be replaced."""
        held = PinHold(self, pins, fleeting)
        # On other systems the rules are by path, and nothing is mounted.
        if pins and sys.platform == "linux":
            self._holds.append(held)
            try:
                self._watch({path.parent for path in pins} - {*self._watches.values()})
            except OSError as error:
                if self._looking is None:
                    log.warning(
                        "no inotify, so git's configuration is checked every %g s: %s",
                        self.every_s,
                        error.strerror,
                    )
                    self._look()
                held.look()
        return held

    def release(self, held: PinHold) -> None:
        """Stop watching for ``held``."""
        if held in self._holds:
            self._holds.remove(held)
        if self._holds:
            return
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self._fd >= 0:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._watches.clear()

    def _look(self) -> None:
        for held in tuple(self._holds):
            held.look()
        self._looking = asyncio.get_running_loop().call_later(self.every_s, self._look)

    def _watch(self, directories: set[Path]) -> None:
        if self.polls:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        libc = ctypes.CDLL(None, use_errno=True)
        if self._fd < 0:
            self._fd = _checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        for directory in directories:
            watch = libc.inotify_add_watch(self._fd, os.fsencode(directory), ctypes.c_uint32(WATCHED))
            self._watches[_checked(watch)] = directory

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        for watch, mask, name in events(data):
            directory = self._watches.get(watch)
            if mask & IN_IGNORED:
                self._watches.pop(watch, None)
            for held in tuple(self._holds):
                if (path := held.struck(directory, mask, name)) is not None:
                    held.lift(path)


def events(data: bytes) -> list[tuple[int, int, str]]:
    """(watch, mask, name) of each event that was read. Pure."""
    found, at = [], 0
    while at + HEAD.size <= len(data):
        watch, mask, _, length = HEAD.unpack_from(data, at)
        name = data[at + HEAD.size : at + HEAD.size + length].rstrip(b"\0")
        found.append((watch, mask, os.fsdecode(name)))
        at += HEAD.size + length
    return found


def _told_apart(path: Path) -> tuple[int, ...] | None:
    """Identifies a file and nothing else, None = missing. A new file may get the inode of the old one, but not its
    ctime; a directory's ctime changes with its content."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, 0 if stat.S_ISDIR(found.st_mode) else found.st_ctime_ns


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)

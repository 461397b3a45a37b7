"""Check that pinned paths stay pinned while a program runs.

A program outside that replaces a file (as `git config` and `git push -u` do) removes what is mounted on it inside: the
kernel detaches mounts from a name that is gone (detach_mounts in fs/namespace.c). From then on the program inside could
write files that make git run programs. So we watch for such a replacement and end the program at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from codebutler.platform.system import NameEvent, this_system
from codebutler_worker.sandbox.checkout import Checkout

if TYPE_CHECKING:
    from codebutler.platform.linux import NameWatch

log = logging.getLogger(__name__)
REPLACED = (
    "{name} was replaced from outside while the agent was working, which removed its protection, so the agent was "
    "stopped: check {path} before you run git, then ask again"
)


class PinHold(Struct):
    """The paths that must stay in place for one program; a ``fleeting`` one may disappear but not be replaced.
    ``lifted``: one line about the first that was replaced, "" if none was; ``gone`` is called with it."""

    watcher: Watcher
    pins: frozenset[Path]
    fleeting: frozenset[Path] = frozenset()
    lifted: str = ""
    gone: Callable[[str], None] | None = None
    seen: dict[Path, tuple[int, ...] | None] = field(default_factory=dict)

    def look(self) -> None:
        """Compare the paths with the last look."""
        for path in sorted(self.pins):
            now = _identity(path)
            was = self.seen.setdefault(path, now)
            if now != was and not (now is None and path in self.fleeting):
                self.lift(path)

    def affected(self, event: NameEvent) -> Path | None:
        """The pin that an event is about, None if none. Pure."""
        for path in sorted(self.pins):
            if event.unsure:
                return path
            if (
                path.parent == event.directory
                and (event.whole or path.name == event.name)
                and not (event.gone and path in self.fleeting)
            ):
                return path
        return None

    def lift(self, path: Path) -> None:
        """``path`` has been replaced."""
        if not self.lifted:
            self.lifted = REPLACED.format(name=path.name, path=path)
            if self.gone is not None:
                self.gone(self.lifted)


class Watcher(Struct):
    """One for all programs of a sandbox. Holds a descriptor while a program runs.

    Such instances are limited per user, and agents run as the same user: if they have used them all, or if the system
    has none, this polls every ``every_s`` instead. ``polls`` forces that.
    """

    every_s: float = 0.2
    polls: bool = False
    _watch: NameWatch | None = None
    _looking: asyncio.TimerHandle | None = None
    _holds: list[PinHold] = field(default_factory=list)

    def hold(self, checkout: Checkout) -> PinHold:
        """Watch from now on what is mounted onto itself or covered, and so must stay in place. Not what is in a closed
        directory: nothing inside can create a replacement there. And git removes a worktree with all its files, and the
        directory of worktrees with the last one: these may disappear."""
        private = () if checkout.private is None else (checkout.private,)
        mounted = (*checkout.pinned, *checkout.fixed, *checkout.closed, *private, *checkout.shared)
        pins = frozenset(path for path in mounted if path.parent not in checkout.closed)
        in_worktrees = (path for path in checkout.fixed if path.parent.parent in checkout.closed)
        held = PinHold(self, pins, frozenset((*checkout.closed, *in_worktrees)))
        if pins:
            self._holds.append(held)
            try:
                if self.polls:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                if self._watch is None:
                    self._watch = this_system().name_watch()
                    asyncio.get_running_loop().add_reader(self._watch.fd, self._read)
                for directory in {path.parent for path in pins}:
                    self._watch.watch(directory)
            except OSError as error:
                if self._looking is None:
                    log.warning(
                        "file watches do not work, checking git's configuration every %g s: %s",
                        self.every_s,
                        error.strerror,
                    )
                    self._look()
                held.look()
        return held

    def release(self, held: PinHold) -> None:
        """Stop watching for ``held``: its program has ended. A second call does nothing."""
        if held in self._holds:
            self._holds.remove(held)
        if self._holds:
            return
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self._watch is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                asyncio.get_running_loop().remove_reader(self._watch.fd)
            os.close(self._watch.fd)
            self._watch = None

    def _look(self) -> None:
        for held in tuple(self._holds):
            held.look()
        self._looking = asyncio.get_running_loop().call_later(self.every_s, self._look)

    def _read(self) -> None:
        for event in () if self._watch is None else self._watch.read():
            for held in tuple(self._holds):
                if (path := held.affected(event)) is not None:
                    held.lift(path)


def _identity(path: Path) -> tuple[int, ...] | None:
    """Identifies a file and nothing else, None = missing. A new file may get the inode of the old one, but not its
    ctime; a directory's ctime changes with its content."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, 0 if stat.S_ISDIR(found.st_mode) else found.st_ctime_ns

"""A program at a terminal, as a person sees it: what stands on the screen, and keys to press."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import pyte

CTRL_C, CTRL_D, UP, ENTER = "\x03", "\x04", "\x1b[A", "\r"
PASTED = "\x1b[200~{}\x1b[201~"
ROWS = 60
DEADLINE_S = 45
# In the child: the terminal becomes its own, so that its Ctrl-C reaches it.
_OWN = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Screen:
    """``text`` is what stands there now; ``raw`` is everything that was written. Make it with ``screen``."""

    def __init__(self, fd: int, process: asyncio.subprocess.Process, columns: int) -> None:
        self.raw = b""
        self.process = process
        self._fd = fd
        self._screen = pyte.Screen(columns, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(fd, self._read)

    @property
    def text(self) -> str:
        """Every line, without what is blank at its end."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    def type(self, keys: str) -> None:
        """Press these keys."""
        os.write(self._fd, keys.encode())

    async def until(self, shown: str) -> None:
        """Wait until the screen shows this."""
        await self._holds(lambda: shown in self.text, repr(shown))

    async def ready(self) -> None:
        """Wait until it asks for a line."""
        await self._holds(lambda: self.text.rpartition("\n")[2] == "you>", "a prompt")

    async def ended(self) -> int:
        """Wait for the program's end; returns its exit code."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()

    def close(self) -> None:
        """Look no more."""
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)

    async def _holds(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"never shown: {what}\n{self.text}") from None

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 2**16)
        except OSError:  # Linux: EIO once the other side is closed
            asyncio.get_running_loop().remove_reader(self._fd)
            return
        self.raw += data
        self._stream.feed(data)
        self._changed.set()


@asynccontextmanager
async def screen(argv: Sequence[str], env: Mapping[str, str], columns: int = 100) -> AsyncIterator[Screen]:
    """``argv`` at a terminal of its own; it is killed at the end if it still runs."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", _OWN, *argv), stdin=theirs, stdout=theirs, stderr=theirs, env=dict(env)
    )
    os.close(theirs)
    shown = Screen(ours, process, columns)
    try:
        yield shown
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        shown.close()

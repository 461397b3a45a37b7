"""PtyProcess: one program in its own pseudo-terminal; when the block ends, no process of it is left.

A thread reads the terminal, so that a flood of output or a slow disk never blocks the event loop. Output goes to
``record`` first, byte for byte as the program wrote it: the terminal does not turn a newline into two characters (OPOST
is off), since Linux would then process a flood line by line, three times slower. ONLCR stays on. It means that a
newline also returns the cursor, until a program that handles this itself (curses, vim) turns it off.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import signal
import struct
import termios
import threading
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from dataclasses import dataclass, field

from codebutler_worker.sandbox.limits import SHELL
from codebutler_worker.sandbox.process import Program

# Reading a terminal's output piece by piece; each piece is recorded first.
#
# Linux buffers 4 KB of a terminal's output, and another processor refills the buffer after a read. A reader that sleeps
# in between is woken 250,000 times per gigabyte; if processors go idle (in a virtual machine), that alone takes longer
# than everything else. So during a flood the reader polls for a moment before it sleeps.

BATCH_BYTES = 256 * 2**10
LEAST_READ_BYTES = 64 * 2**10
FLOOD_BYTES = 1024
"""A read of this size is a flood: people and progress bars write less."""
AWAKE_NS = 300_000

Record = Callable[[memoryview], None]
"""Receives a piece as it was read; the buffer is reused after the call returns."""


def unrecorded(piece: memoryview) -> None:
    """A Record that records nothing."""


class TerminalReader:
    """Reads the non-blocking ``master``. For one thread."""

    def __init__(self, master: int, record: Record) -> None:
        self._master = master
        self._record = record
        self._batch = memoryview(bytearray(BATCH_BYTES + LEAST_READ_BYTES))
        self._count = bytearray(4)
        self._poll = select.poll()
        self._poll.register(master, select.POLLIN)

    def next(self, at_most_ms: int) -> tuple[bytes, bool]:
        """Wait for output and return it, and whether it was the last (Linux: EIO once nobody holds the other side). All
        of it has been recorded."""
        self._poll.poll(at_most_ms)
        size, over = 0, False
        while size < BATCH_BYTES:
            try:
                read = os.readv(self._master, [self._batch[size:]])
            except BlockingIOError:
                break
            except OSError:
                read = 0
            if not read:
                over = True
                break
            self._record(self._batch[size : size + read])
            size += read
            if read >= FLOOD_BYTES and not self._soon():
                break
        return bytes(self._batch[:size]), over

    def _soon(self) -> bool:
        """Poll until there is more output, or give up after a moment. Yielding the processor here would cost more on a
        busy machine than it saves on an idle one, and would hold the interpreter."""
        until_ns = time.monotonic_ns() + AWAKE_NS
        while time.monotonic_ns() < until_ns:
            try:
                fcntl.ioctl(self._master, termios.FIONREAD, self._count)
            except OSError:
                return True  # the next read tells what happened
            if any(self._count):
                return True
        return False


INTERRUPT = b"\x03"
ROWS, COLUMNS = 50, 220
POLL_MS = 250
WRITE_S = 5.0
DRAIN_S = 2.0
CANONICAL_LINE_BYTES = 4095
"""Linux: how much of a line a terminal buffers until Enter (N_TTY_BUF_SIZE - 1)."""

Sink = Callable[[bytes, bool], None]
"""Called with a program's output on the reader's thread; True: a newline in it also returns the cursor."""

# A session leader that opens a terminal gets it as its controlling terminal. The wrapper must survive Ctrl-C: it
# ignores the signals; the program itself is started with them restored.
ATTACH = 'trap "" INT QUIT TSTP; exec "$@" <>"$0" >&0 2>&0'


@dataclass(eq=False, repr=False)
class PtyProcess(Program):
    """A program on a terminal. ``sink`` gets its output from a thread, after ``record`` has had every byte of it.
    ``typed``: a few bytes of input that are in the terminal before the program starts. To end it we hang up."""

    end_signals = (signal.SIGHUP, signal.SIGCONT)

    sink: Sink
    record: Record = unrecorded
    typed: bytes = b""
    ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    output: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _closing: bool = field(default=False, init=False)
    _master: int = field(init=False)
    _slave: int = field(init=False)
    _loop: asyncio.AbstractEventLoop = field(init=False)
    _reader: threading.Thread = field(init=False)
    _watcher: asyncio.Task[None] = field(init=False)

    async def _execute(self, argv: tuple[str, ...], env: dict[str, str]) -> Process:
        self._loop = asyncio.get_running_loop()
        self._master, self._slave = os.openpty()
        try:
            _leave_newlines(self._slave)
            fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            os.set_blocking(self._master, False)
            if self.typed:
                os.write(self._master, self.typed)
            process = await asyncio.create_subprocess_exec(
                *(SHELL, "-c", ATTACH, os.ttyname(self._slave), *argv),
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=DEVNULL,
                cwd=self.launch.cwd,
                env=env,
                start_new_session=True,
            )
        except OSError:
            os.close(self._master)
            os.close(self._slave)
            raise
        self._reader = threading.Thread(target=self._read, name=f"terminal:{process.pid}", daemon=True)
        self._reader.start()
        self._watcher = asyncio.create_task(self._watch(), name=f"watch:{process.pid}")
        return process

    @property
    def hides_typing(self) -> bool:
        """Whether the program reads a line without echo, that is, asks for a password."""
        if self._closing:
            return False
        local = termios.tcgetattr(self._slave)[3]
        return bool(local & termios.ICANON) and not local & termios.ECHO

    @property
    def reads_lines(self) -> bool:
        """Whether the terminal buffers whole lines for the program, which is the default."""
        return not self._closing and bool(termios.tcgetattr(self._slave)[3] & termios.ICANON)

    def tidy(self) -> None:
        """Undo what programs did to the terminal: it takes whole lines and Ctrl-C, and shows nothing of its input. Does
        nothing for a container, which has a terminal of its own: this one only passes the keys on."""
        if not self._closing and not self.container:
            mode = termios.tcgetattr(self._slave)
            mode[0] |= termios.ICRNL
            mode[3] = mode[3] & ~termios.ECHO | termios.ICANON | termios.ISIG
            termios.tcsetattr(self._slave, termios.TCSANOW, mode)

    async def write(self, data: bytes) -> bool:
        """Type ``data``; False if the program does not read."""
        return not self._closing and await asyncio.to_thread(self._write, data)

    async def _watch(self) -> None:
        """When the program ends, kill its leftovers and read the terminal's remaining output."""
        await self.wait()
        await self.stop(term_s=0)

    async def _close(self) -> None:
        """Close our end of the other side, so that the reader reaches the end of the output."""
        self._closing = True
        os.close(self._slave)
        await asyncio.to_thread(self._reader.join, DRAIN_S + 2 * POLL_MS / 1000)
        if not self._reader.is_alive():
            os.close(self._master)
        self.ended.set()
        self.output.set()

    def _read(self) -> None:
        reading = TerminalReader(self._master, self.record)
        gives_up_s: float | None = None
        while True:
            data, over = reading.next(POLL_MS)
            if data:
                self.sink(data, _newline_returns(self._master))
                self._tell()
            if self._closing:
                gives_up_s = gives_up_s or time.monotonic() + DRAIN_S
                over = over or time.monotonic() > gives_up_s
            if over:
                return

    def _tell(self) -> None:
        if not self.output.is_set():
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is waiting
                self._loop.call_soon_threadsafe(self.output.set)

    def _write(self, data: bytes) -> bool:
        poll = select.poll()
        poll.register(self._master, select.POLLOUT)
        until_s = time.monotonic() + WRITE_S
        while data and not self._closing and time.monotonic() < until_s:
            poll.poll(POLL_MS)
            try:
                data = data[os.write(self._master, data) :]
            except BlockingIOError:
                continue
            except OSError:
                return False
        return not data


def _leave_newlines(terminal: int) -> None:
    mode = termios.tcgetattr(terminal)
    mode[1] = mode[1] & ~termios.OPOST | termios.ONLCR
    termios.tcsetattr(terminal, termios.TCSANOW, mode)


def _newline_returns(terminal: int) -> bool:
    with contextlib.suppress(termios.error):  # the other end is closed
        return bool(termios.tcgetattr(terminal)[1] & termios.ONLCR)
    return True

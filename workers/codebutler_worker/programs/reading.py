"""Reading: the output of a terminal, piece by piece, each first of all into the record.

Linux holds 4 KB of a terminal's output ready, and has another processor fill that again once it was read. A reader
that sleeps in between is woken 250,000 times for a gigabyte; where processors doze (in a virtual machine) that alone
takes longer than everything else. So in a flood it asks again for a moment before it sleeps.
"""

from __future__ import annotations

import fcntl
import os
import select
import termios
import time
from collections.abc import Callable

BATCH_BYTES = 256 * 2**10
LEAST_READ_BYTES = 64 * 2**10
FLOOD_BYTES = 1024
"""Read at once: more than people and progress bars have to say."""
AWAKE_NS = 300_000

Record = Callable[[memoryview], None]
"""Takes a piece as it was read; the piece is gone when it returns."""


def unrecorded(piece: memoryview) -> None:
    """The record of a program that has none."""


class Reading:
    """Reads ``master``, which does not block. For one thread."""

    def __init__(self, master: int, record: Record) -> None:
        self._master = master
        self._record = record
        self._batch = memoryview(bytearray(BATCH_BYTES + LEAST_READ_BYTES))
        self._count = bytearray(4)
        self._poll = select.poll()
        self._poll.register(master, select.POLLIN)

    def next(self, at_most_ms: int) -> tuple[bytes, bool]:
        """What has come, after waiting for it; whether that was the end (Linux: EIO once nobody holds the other
        side). All of it has been recorded."""
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
        """Stay awake until there is more, or for a moment in vain. To yield the processor meanwhile costs more among
        others than it brings when alone, and would hold the interpreter."""
        until_ns = time.monotonic_ns() + AWAKE_NS
        while time.monotonic_ns() < until_ns:
            try:
                fcntl.ioctl(self._master, termios.FIONREAD, self._count)
            except OSError:
                return True  # the next read says what it is
            if any(self._count):
                return True
        return False

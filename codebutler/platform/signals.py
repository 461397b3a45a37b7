"""A run's milestones, set by signals: ready, asked to stop, insisted upon; and telling the service manager of them.

Signal handlers only set; the loop acts. Nothing is sent unless the environment names the manager's socket. The signs of
life come from the parent's own loop, so a loop that hangs falls silent and is restarted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import FrameType

from codebutler.domain.clock import Clock

SIGNALS = (signal.SIGTERM, signal.SIGINT)
SOCKET, WATCHDOG, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
BEAT_S = 15.0
# A start takes as long as Slack cannot be reached: the manager need not lose patience meanwhile.
START_AGAIN_S = 60


def ignore_interrupts() -> None:
    """Let SIGINT do nothing to this process.

    By a handler, and not by ignoring it: a program that we execute would ignore it, too (execve(2)), and Ctrl-C
    would end nothing that an agent starts.
    """
    signal.signal(signal.SIGINT, _nothing)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    return


class Stopping:
    """``ready``: everything is up. ``asked``: finish what runs. ``insisted``: end now."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.asked = asyncio.Event()
        self.insisted = asyncio.Event()

    def ask(self) -> None:
        """Once: stop in order. Again: at once."""
        if self.asked.is_set():
            self.insisted.set()
        self.asked.set()

    @contextmanager
    def on_signals(self) -> Iterator[Stopping]:
        """SIGTERM and SIGINT ask while the context lives."""
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            loop.add_signal_handler(each, self.ask)
        try:
            yield self
        finally:
            for each in SIGNALS:
                loop.remove_signal_handler(each)


log = logging.getLogger("codebutler.platform.signals")


class Notifier:
    """``run`` until cancelled. ``status`` gives the line that `systemctl status` shows."""

    def __init__(self, address: str, beat_s: float, clock: Clock, status: Callable[[], str]) -> None:
        self._address = address
        self._beat_s = beat_s
        self._clock = clock
        self._status = status
        self._failed = False

    async def run(self, stopping: Stopping) -> None:
        """Tell of the milestones as they come, and in between that we live."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(0)
            async with asyncio.TaskGroup() as parts:
                parts.create_task(self._beat(sender, stopping), name="notify-beat")
                parts.create_task(self._tell_ready(sender, stopping), name="notify-ready")
                parts.create_task(self._tell_stopping(sender, stopping), name="notify-stopping")

    async def _tell_ready(self, sender: socket.socket, stopping: Stopping) -> None:
        await stopping.ready.wait()
        if not stopping.asked.is_set():
            self._send(sender, "READY=1", f"STATUS={self._status()}")

    async def _tell_stopping(self, sender: socket.socket, stopping: Stopping) -> None:
        await stopping.asked.wait()
        self._send(sender, "STOPPING=1", "STATUS=finishing running work")

    async def _beat(self, sender: socket.socket, stopping: Stopping) -> None:
        while True:
            if stopping.asked.is_set():
                self._send(sender, "WATCHDOG=1")
            elif stopping.ready.is_set():
                self._send(sender, "WATCHDOG=1", f"STATUS={self._status()}")
            else:
                patience = f"EXTEND_TIMEOUT_USEC={START_AGAIN_S * 1_000_000}"
                self._send(sender, patience, f"STATUS=starting: {self._status()}")
            await self._clock.sleep(self._beat_s)

    def _send(self, sender: socket.socket, *assignments: str) -> None:
        """A manager that does not listen is no reason to stop; it is told of once."""
        try:
            sender.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:
            if not self._failed:
                log.warning("the service manager cannot be notified: %s", error.strerror)
            self._failed = True


@asynccontextmanager
async def notifying(
    env: Mapping[str, str], clock: Clock, stopping: Stopping, status: Callable[[], str]
) -> AsyncIterator[None]:
    """The service manager that ``env`` names, if any, is kept informed while the context lives."""
    address = address_of(env.get(SOCKET, ""))
    if address is None:
        yield
        return
    task = asyncio.create_task(Notifier(address, beat_of(env), clock, status).run(stopping), name="notify")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def address_of(text: str) -> str | None:
    """The socket's address: a path, or a name in the abstract space (written with @); None for any other."""
    if text.startswith("@"):
        return f"\0{text[1:]}"
    return text if text.startswith("/") else None


def beat_of(env: Mapping[str, str]) -> float:
    """Seconds between signs of life: half of what the manager waits, as sd_watchdog_enabled(3) advises."""
    wait_us = env.get(WATCHDOG, "")
    ours = env.get(WATCHDOG_PID, str(os.getpid())) == str(os.getpid())
    return int(wait_us) / 2_000_000 if ours and wait_us.isdigit() and int(wait_us) else BEAT_S

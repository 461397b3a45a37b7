"""A run's milestones, set by signals: ready, asked to stop, told to stop at once; and reporting them to the service
manager.

Signal handlers only set events; the event loop acts. Nothing is sent unless the environment names the manager's socket.
The heartbeats come from the parent's own loop, so if it hangs, it falls silent and is restarted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import FrameType

from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError

SIGNALS = (signal.SIGTERM, signal.SIGINT)
SOCKET, WATCHDOG, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
BEAT_S = 15.0
# A start takes as long as a chat cannot be reached; the manager should not give up meanwhile.
START_AGAIN_S = 60

log = logging.getLogger("codebutler.platform.signals")


def ignore_interrupts() -> None:
    """Make SIGINT do nothing in this process.

    By a handler rather than by ignoring it: programs that we execute would inherit that (execve(2)), and Ctrl-C would
    not work in anything an agent starts.
    """
    signal.signal(signal.SIGINT, _nothing)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    return


class Stopping:
    """The milestones of a run. ``ready``: everything is up. ``asked``: finish running work. ``insisted``: end now.
    ``restarts``: another run follows at once."""

    def __init__(self, *, may_restart: bool = False) -> None:
        self.restarts = False
        self._may_restart = may_restart
        self.ready = asyncio.Event()
        self.asked = asyncio.Event()
        self.insisted = asyncio.Event()

    def ask(self) -> None:
        """The first call stops in order, the second at once. After it, nothing restarts."""
        if self.asked.is_set() and not self.restarts:
            self.insisted.set()
        self.restarts = False
        self.asked.set()

    def restart(self) -> None:
        """Stop in order, for another run. Raises CodeButlerError if it is stopping already, or cannot restart."""
        if not self._may_restart:
            raise CodeButlerError("a demo cannot be restarted: end it with Ctrl-C and start it again")
        if self.asked.is_set() and not self.restarts:
            raise CodeButlerError("it is already stopping: start it again with `codebutler supervise`")
        if not self.asked.is_set():
            self.restarts = True
            self.asked.set()

    @contextmanager
    def on_signals(self) -> Iterator[Stopping]:
        """SIGTERM and SIGINT call ``ask`` while the context is open."""
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            loop.add_signal_handler(each, self.ask)
        try:
            yield self
        finally:
            for each in SIGNALS:
                loop.remove_signal_handler(each)


class Notifier:
    """Reports to the service manager; ``run`` runs until cancelled. ``status`` returns the line that `systemctl status`
    shows."""

    def __init__(self, address: str, beat_s: float, clock: Clock, status: Callable[[], str]) -> None:
        self._address = address
        self._beat_s = beat_s
        self._clock = clock
        self._status = status
        self._failed = False

    async def run(self, stopping: Stopping) -> None:
        """Report the milestones as they come, and heartbeats in between."""
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
        if stopping.restarts:
            # Not STOPPING: the manager would wait for the end of the process, which stays.
            now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            self._send(sender, "RELOADING=1", f"MONOTONIC_USEC={now_us}", "STATUS=restarting")
        else:
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
        """A manager that does not listen is no reason to stop; it is logged once."""
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
    """Keep the service manager that ``env`` names, if any, informed while the context is open."""
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
    """The socket's address: a path, or a name in the abstract namespace (written with @); None for anything else."""
    if text.startswith("@"):
        return f"\0{text[1:]}"
    return text if text.startswith("/") else None


def beat_of(env: Mapping[str, str]) -> float:
    """Seconds between heartbeats: half of the manager's timeout, as sd_watchdog_enabled(3) advises."""
    wait_us = env.get(WATCHDOG, "")
    ours = env.get(WATCHDOG_PID, str(os.getpid())) == str(os.getpid())
    return int(wait_us) / 2_000_000 if ours and wait_us.isdigit() and int(wait_us) else BEAT_S

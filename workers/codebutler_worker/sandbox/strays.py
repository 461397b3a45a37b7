"""Containers that have to end while docker's daemon does not answer: they go on without it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from codebutler.errors import SandboxUnavailableError
from codebutler_worker.sandbox.groupfiles import members

AGAIN_S = 5.0


def end_first_process(pid: int, group: Path | None) -> bool:
    """Kill a container's first process, and with it all that runs there (pid_namespaces(7)), without the daemon.

    ``group`` is a control group that it is in, None if that is not to be seen from here. False: it cannot be done
    from here, or need not be.
    """
    if group is None:
        return False
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Its number may be another process's by now.
        if pid not in members(group):
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(process)
    return True


class Strays:
    """Ends containers as soon as the daemon answers again. ``remove`` takes the names of those that may still be
    there, and raises SandboxUnavailableError while there is no answer."""

    def __init__(self, remove: Callable[[Collection[str]], Awaitable[None]]) -> None:
        self._remove = remove
        self._names: set[str] = set()
        self._chase: asyncio.Task[None] | None = None

    def add(self, name: str) -> None:
        """This one could not be ended."""
        self._names.add(name)
        if self._chase is None or self._chase.done():
            self._chase = asyncio.create_task(self._until_gone(), name="stray containers")

    async def close(self) -> None:
        """Give up: the next worker sweeps what is left."""
        if self._chase is not None:
            self._chase.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._chase

    async def _until_gone(self) -> None:
        while self._names:
            await asyncio.sleep(AGAIN_S)
            names = set(self._names)
            with contextlib.suppress(SandboxUnavailableError):
                await self._remove(names)
                self._names -= names

"""The docker client, asked one thing at a time; and containers that have to end while its daemon does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from codebutler.config.programs import RUNNER
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.cgroups import members

# The docker client, asked one thing at a time.

CLIENT_S = 60.0
MISSING = f"the image {RUNNER} is missing: run `codebutler sandbox build`"


@dataclass(frozen=True, slots=True)
class Docker:
    """The docker client, as arguments: ``host`` is the daemon's address. No configuration of the user's is read."""

    program: Path
    host: str

    @property
    def argv(self) -> tuple[str, ...]:
        """What every call of the client begins with."""
        return (str(self.program), "--config", "/var/empty/codebutler", "--host", self.host)

    async def run(self, *words: str, env: dict[str, str] | None = None) -> str:
        """What a command of the client printed. ``env`` is the client's own environment.

        Raises SandboxUnavailableError with docker's own words.
        """
        process = await asyncio.create_subprocess_exec(
            *self.argv, *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd="/", env=env or {}
        )
        try:
            async with asyncio.timeout(CLIENT_S):
                out, err = await process.communicate()
        except TimeoutError:
            raise SandboxUnavailableError(f"docker {words[0]} took longer than {CLIENT_S:g} s") from None
        finally:
            await let_go(process)
        if process.returncode != 0:
            raise SandboxUnavailableError(_why(err.decode(errors="replace"), process.returncode or 0))
        return out.decode(errors="replace").strip()

    async def hold(self, *words: str) -> Process:
        """A `docker run` that stays, once what it runs has said its first line. That reads until we are gone, or close
        the client's input; the daemon sees to it, whoever else was killed with us. Raises SandboxUnavailableError."""
        process = await asyncio.create_subprocess_exec(
            *self.argv, *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd="/", env={}, start_new_session=True
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(CLIENT_S):
                if await process.stdout.readline():
                    return process
                _, err = await process.communicate()
        except TimeoutError:
            await let_go(process)
            raise SandboxUnavailableError(f"docker {words[0]} took longer than {CLIENT_S:g} s") from None
        raise SandboxUnavailableError(_why(err.decode(errors="replace"), process.returncode or 0))


async def let_go(process: Process) -> None:
    """End what it held."""
    if process.returncode is None:
        process.kill()
    await process.wait()


def _why(stderr: str, code: int) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not line.startswith("See ")]
    said = lines[0].removeprefix("docker: ").removeprefix("Error response from daemon: ") if lines else ""
    if "No such image" in said or "Unable to find image" in said:
        return MISSING
    return f"docker does not work here: {said[:300].rstrip('.?') or f'exit code {code}'}"


# Containers that have to end while docker's daemon does not answer: they go on without it.

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


class PendingRemovals:
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

"""`codebutler` without its second of imports: a process that has done them once forks itself for each command.

What runs is the real program in a process of its own, with the environment, the descriptors and the directory that it
is given. Whoever needs a program before it, or an interpreter that is told something by its environment, starts one.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

OURS = (sys.executable, "-I", "-m", "codebutler")
TOLD_TO_PYTHON = ("LC_", "LD_", "PYTHON", "MALLOC_")
DIED = 255
LONGEST = 2**16
ROOMS = ("chat", "cli", "cluster", "intake", "parent", "schedule", "supervisor", "web")


def is_for_us(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether a fork does the same: one of our commands, in an environment that says nothing to the interpreter."""
    told = any(name.startswith(TOLD_TO_PYTHON) for name in env)
    return tuple(argv[:4]) == OURS and env.get("LANG") == "C.UTF-8" and not told and hasattr(os, "pidfd_open")


class WarmProcess:
    """As much of `asyncio.subprocess.Process` as its users need."""

    def __init__(self, pid: int, ends: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._waiting = asyncio.create_task(self._wait(ends), name=f"process {pid}")

    async def _wait(self, ends: socket.socket) -> int:
        with ends:
            told = await asyncio.get_running_loop().sock_recv(ends, 16)
        self.returncode = int(told) if told else DIED
        return self.returncode

    async def wait(self) -> int:
        """Its exit code, negative for a signal."""
        return await asyncio.shield(self._waiting)

    def send_signal(self, number: int) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: int | None = None,
    output: int,
    cwd: Path | None = None,
) -> WarmProcess:
    """Run one of our commands; ``stdin`` and ``output`` (which is stderr, too) stay the caller's to close."""
    ends = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        ends.connect(_template())
        nothing = os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin
        try:
            asked = json.dumps({"argv": list(argv[4:]), "env": dict(env), "cwd": str(cwd or Path.cwd())})
            socket.send_fds(ends, [asked.encode()], [nothing, output, output])
        finally:
            if stdin is None:
                os.close(nothing)
        pid = int(ends.recv(16))
        ends.setblocking(False)
    except BaseException:
        ends.close()
        raise
    return WarmProcess(pid, ends)


async def start_logged(
    argv: Sequence[str], env: Mapping[str, str], log: IO[bytes]
) -> WarmProcess | asyncio.subprocess.Process:
    """Run a command, ours or not, that reads nothing and writes into ``log``."""
    if is_for_us(argv, env):
        return await start(argv, env=env, output=log.fileno())
    return await asyncio.create_subprocess_exec(
        *argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )


@functools.cache
def _template() -> str:
    """Start it, once for this process, and give the address at which it is asked; it ends when we do."""
    address = f"\0codebutler-tests-{os.getpid()}-{os.urandom(4).hex()}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen(64)
    alive, end = os.pipe()
    template = subprocess.Popen(
        [sys.executable, "-I", __file__, str(listener.fileno()), str(alive)],
        pass_fds=(listener.fileno(), alive),
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
    )
    listener.close()
    os.close(alive)

    def stop() -> None:
        os.close(end)
        template.wait()

    atexit.register(stop)
    return address


def serve(listener: socket.socket, alive: int) -> list[str] | None:
    """Fork for each that asks. Returns None at the end, and in each child the arguments of its command."""
    watched = selectors.DefaultSelector()
    watched.register(listener, selectors.EVENT_READ)
    watched.register(alive, selectors.EVENT_READ)
    while True:
        for key, _ in watched.select():
            if key.fileobj == alive:
                return None
            if key.fileobj is not listener:
                _tell_end(watched, key)
                continue
            asking, _ = listener.accept()
            asked, given, _, _ = socket.recv_fds(asking, LONGEST, 3)
            pid = os.fork()
            if pid == 0:
                os.close(alive)
                asking.close()
                _forget(watched)
                return _become(json.loads(asked), given)
            for each in given:
                os.close(each)
            watched.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, asking))
            asking.send(str(pid).encode())


def _forget(watched: selectors.BaseSelector) -> None:
    """Close what only the template has: who waits for our siblings, and who asks for more of us."""
    for key in list(watched.get_map().values()):
        if isinstance(key.fileobj, socket.socket):
            key.fileobj.close()
        elif key.data is not None:
            key.data[1].close()
            os.close(key.fd)
    watched.close()


def _tell_end(watched: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    pid, asking = key.data
    watched.unregister(key.fileobj)
    os.close(key.fd)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError), asking:
        asking.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(asked: dict[str, Any], given: Sequence[int]) -> list[str]:
    """Be the process that was asked for."""
    for number, descriptor in enumerate(given):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    main = importlib.import_module("codebutler.__main__")
    sys.argv = [str(main.__file__), *asked["argv"]]
    sys.orig_argv = [*OURS, *asked["argv"]]
    return list(asked["argv"])


def prepare() -> None:
    """Import what the commands would, when they need it."""
    import codebutler

    for found in pkgutil.walk_packages(codebutler.__path__, "codebutler."):
        if found.name.split(".")[1] in ROOMS:
            importlib.import_module(found.name)
    importlib.import_module("typer._adapters")
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    prepare()
    arguments = serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    if arguments is not None:
        sys.exit(importlib.import_module("codebutler.__main__").main(arguments))

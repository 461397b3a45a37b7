"""ForkServer: starts worker processes from a warm template. The only module that names the worker's code.

multiprocessing's fork server imports the worker's modules once and forks itself for each worker, so that a worker
starts in milliseconds and shares its memory. It is a separate process, started with a scrubbed environment and without
our descriptors: a worker can inherit neither a token nor another worker's pipe. Workers read /dev/null; anything they
print by mistake, mostly tracebacks, reaches our log line by line.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import importlib
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from types import MappingProxyType, ModuleType

from codebutler.platform import kill_points
from codebutler.platform.lookup import TERMINAL_PATH
from codebutler.platform.processes import ALLOCATOR_VARIABLES, MARK, check_free, lower_to, own_mark
from codebutler.platform.signals import ignore_interrupts
from codebutler.platform.system import this_system
from codebutler.protocol.messages import ToParent
from codebutler.protocol.pipe import MessagePipe, to_parent_codec

CHUNK_BYTES = 2**14
LINE_BYTES = 2**13
WORKER_TARGET = "codebutler_worker.worker.bootstrap:main"
WORKER_PRELOAD = ("codebutler_worker.preload",)
UNKNOWN_CODE = 255
# A socket's path may have 107 bytes (unix(7)); multiprocessing uses 34 of them below the temporary directory.
LONGEST_PLACE = 70
SHORT_PLACE = "/tmp"  # noqa: S108 - multiprocessing makes a private directory in it
KEPT_VARIABLES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "TERM",
        "CODEBUTLER_HOME",
        TERMINAL_PATH,
        "DOCKER_HOST",
        # Where the owner's keys and logins are asked for, when a worker pushes or signs.
        "SSH_AUTH_SOCK",
        "DBUS_SESSION_BUS_ADDRESS",
        "GH_CONFIG_DIR",
        "GNUPGHOME",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        kill_points.VARIABLE,
    }
)
KEPT_PREFIXES = ("LC_", "XDG_")


class WorkerOutput:
    """The reading end of a pipe that is a worker's stdout and stderr: line by line and bounded."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        self._reader = reader
        self._transport = transport

    @classmethod
    async def over(cls, fd: int) -> WorkerOutput:
        """Read from ``fd`` and own it."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=CHUNK_BYTES)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
        )
        return cls(reader, transport)

    async def lines(self) -> AsyncIterator[str]:
        """Every non-blank line until end of file; one that is too long comes in pieces."""
        rest = b""
        while chunk := await self._reader.read(CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > LINE_BYTES:
                lines, rest = [*lines, rest], b""
            for line in lines:
                if text := line.decode(errors="replace").rstrip():
                    yield text
        if text := rest.decode(errors="replace").rstrip():
            yield text

    def close(self) -> None:
        """Stop reading."""
        self._transport.close()


class WorkerProcess:
    """A worker and the pipe to it: the real WorkerLink."""

    def __init__(
        self, process: ForkServerProcess, channel: MessagePipe[ToParent], output: WorkerOutput
    ) -> None:
        assert process.pid is not None
        self.pid = process.pid
        self._process = process
        self._channel = channel
        self._output = output
        self.messages, self.send, self.drain = channel.messages, channel.send, channel.drain
        self.printed = output.lines
        self._loop = asyncio.get_running_loop()
        self._dead: asyncio.Future[int] = self._loop.create_future()
        self._handle = this_system().handle(process.pid)
        self._loop.add_reader(process.sentinel, self._on_sentinel)

    @property
    def unread_bytes(self) -> int:
        """How many bytes sent to the worker it has not read yet."""
        return self._channel.unread_bytes

    async def wait_dead(self) -> int:
        """The exit code, negative for a signal; 255 if the fork server died and the code is lost."""
        return await asyncio.shield(self._dead)

    def kill(self, signal_number: int) -> None:
        """Send a signal; harmless once the process is dead."""
        if self._dead.done():
            return
        with contextlib.suppress(ProcessLookupError):
            if self._handle is None:
                os.kill(self.pid, signal_number)
            else:
                this_system().send(self._handle, signal_number)

    def close(self) -> None:
        """Close our end of the pipes."""
        self._channel.close()
        self._output.close()

    def _on_sentinel(self) -> None:
        self._loop.remove_reader(self._process.sentinel)
        # Readable means that it is dead, or that the fork server is: then nobody watches the worker any more.
        self.kill(signal.SIGKILL)
        if self._handle is None:
            self._bury()
        else:
            self._loop.add_reader(self._handle, self._bury)

    def _bury(self) -> None:
        self._process.join()
        code = self._process.exitcode
        self._process.close()
        if self._handle is not None:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
        self._dead.set_result(UNKNOWN_CODE if code is None else code)


class ForkServer:
    """Starts workers that run ``target`` ("module:function", called with a Connection). ``given`` is their environment
    in place of ours; ``files`` is their soft limit of open files, None = ours.

    Create it before anything else that uses multiprocessing, so that its resource tracker starts with the scrubbed
    environment too.
    """

    def __init__(
        self,
        target: str = WORKER_TARGET,
        preload: Sequence[str] = WORKER_PRELOAD,
        given: Mapping[str, str] = MappingProxyType({}),
        files: int | None = None,
    ) -> None:
        self._target = target
        self._given = given
        self._files = files
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__, *preload])

    def start(self) -> None:
        """Start the template process now, so that the first worker need not wait for its imports."""
        from multiprocessing import forkserver

        with _presentable(self._given), _room_for_sockets():
            forkserver.ensure_running()

    async def spawn(self, name: str) -> WorkerProcess:
        """Start a worker process. Raises OSError or EOFError if it cannot be started.

        Call it only from the event loop's thread: multiprocessing tracks its processes without locks.
        """
        with contextlib.ExitStack() as pipes, contextlib.ExitStack() as failing:
            ours, theirs = map(pipes.enter_context, self._context.Pipe(duplex=True))
            printed, printing = map(pipes.enter_context, self._context.Pipe(duplex=False))
            channel = await MessagePipe.over(socket.socket(fileno=os.dup(ours.fileno())), to_parent_codec())
            failing.callback(channel.close)
            output = await WorkerOutput.over(os.dup(printed.fileno()))
            failing.callback(output.close)
            process = self._context.Process(
                target=run_worker, args=(self._target, theirs, printing, self._files), name=name, daemon=True
            )
            # If we run out of descriptors in the middle of a request, the fork server ends, and with it every worker.
            check_free()
            with _presentable(self._given):
                process.start()
            failing.pop_all()
        return WorkerProcess(process, channel, output)


def scrubbed(environment: dict[str, str]) -> dict[str, str]:
    """The part of our environment that a worker may have: nothing that could hold a secret."""
    kept = {k: v for k, v in environment.items() if k in KEPT_VARIABLES or k.startswith(KEPT_PREFIXES)}
    # `python -c`, which starts the fork server, would import from the current directory first: a repository.
    return kept | {"PYTHONSAFEPATH": "1", **dict(ALLOCATOR_VARIABLES)}


@contextlib.contextmanager
def _room_for_sockets() -> Iterator[None]:
    """The fork server's socket is in the temporary directory, whose path may be too long."""
    before = tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) > LONGEST_PLACE:
        tempfile.tempdir = SHORT_PLACE
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextlib.contextmanager
def _presentable(given: Mapping[str, str]) -> Iterator[None]:
    """While a process starts: a scrubbed environment, and no main module that would run again there."""
    before = dict(os.environ)
    during = scrubbed({**before, **given}) | {MARK: own_mark()}
    main_module = sys.modules["__main__"]
    for name in before.keys() - during.keys():
        del os.environ[name]
    os.environ.update(during)
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main_module
        for name in during.keys() - before.keys():
            os.environ.pop(name, None)
        os.environ.update(before)


def run_worker(target: str, connection: Connection, printing: Connection, files: int | None) -> None:
    """Call ``target`` ("package.module:function") with the worker's end of the pipe.

    ``files`` is its soft limit of open files, None = unchanged. ``printing`` becomes stdout and stderr: printed output
    belongs in the parent's log, not on its terminal.
    """
    os.dup2(printing.fileno(), 1)
    os.dup2(printing.fileno(), 2)
    printing.close()
    # A separate session: Ctrl-C in the terminal goes to the parent, which then asks the workers to stop.
    with contextlib.suppress(OSError):
        os.setsid()
    ignore_interrupts()
    if files is not None:
        lower_to(files)
    faulthandler.enable(all_threads=True)
    module, _, function = target.partition(":")
    getattr(importlib.import_module(module), function)(connection)

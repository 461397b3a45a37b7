"""The worker's composition root: what the fork server's child calls. Settings come over the pipe."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from multiprocessing import current_process
from multiprocessing.connection import Connection
from pathlib import Path

from codebutler import killpoints
from codebutler.clock import Clock, SystemClock
from codebutler.config.paths import Home
from codebutler.config.schema import RepoSettings
from codebutler.errors import EXIT_FAILED, CodeButlerError
from codebutler.protocol.channel import Channel
from codebutler.protocol.codec import to_worker_codec
from codebutler.protocol.messages import Goodbye, Log, LogTag, ToWorker
from codebutler_worker.agents.leftovers import kill_orphans
from codebutler_worker.conversation.desk import Agents, Desk, Reporter
from codebutler_worker.conversation.outbox import Outbox
from codebutler_worker.roster import Roster
from codebutler_worker.store.open import open_store
from codebutler_worker.store.state_dir import prepare_state_dir
from codebutler_worker.worker import Worker, greet

TERMINATED_GRACE_S = 5.0
_TAGS: dict[int, LogTag] = {logging.DEBUG: "DBG", logging.INFO: "INF", logging.WARNING: "WRN"}


def main(connection: Connection) -> None:
    """Serve one repository over the parent's pipe, then exit: 0, 1, or 78 when restarting cannot help."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(all_threads=True)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    killpoints.watch(f"worker:{current_process().name}", os.environ)
    sock = socket.socket(fileno=os.dup(connection.fileno()))
    connection.close()
    sys.exit(asyncio.run(serve(sock, SystemClock(), _roster)))


async def serve(sock: socket.socket, clock: Clock, agents: Callable[[RepoSettings, Clock], Agents]) -> int:
    """Everything between the first Hello and the last Goodbye; returns the exit code.

    ``agents`` makes the repository's agents once its settings are known.
    """
    channel: Channel[ToWorker] = await Channel.over(sock, to_worker_codec())
    logger, handler = logging.getLogger("codebutler_worker"), HomeHandler(channel.send)
    logger.addHandler(handler)
    try:
        configured = await greet(channel)
        if configured is None:
            return 0
        logger.setLevel(_level(configured.settings))
        return await _work(channel, configured.settings, clock, agents)
    except CodeButlerError as error:
        channel.send(Log(tag="ERR", text=str(error)))
        channel.send(Goodbye(reason=str(error)))
        await channel.drain()
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the last border: it goes home as one record, and a new life begins
        channel.send(Log(tag="ERR", text=f"the worker broke: {''.join(traceback.format_exception(error))}"))
        channel.send(Goodbye(reason=repr(error)))
        await channel.drain()
        return EXIT_FAILED
    finally:
        logger.removeHandler(handler)
        channel.close()
        await channel.wait_closed()


async def _work(
    channel: Channel[ToWorker],
    settings: RepoSettings,
    clock: Clock,
    agents: Callable[[RepoSettings, Clock], Agents],
) -> int:
    if settings.config.sandbox.mode == "none" and (killed := await kill_orphans()):
        # Walls take their programs along; without them those of a killed worker are still at it.
        channel.send(Log(tag="WRN", text=f"{killed} programs of a worker that is no more were killed"))
    path = prepare_state_dir(Path(settings.path)) / "store.db"
    # Opening may migrate, which blocks; nothing else runs yet, and the parent allows a start its time.
    async with open_store(path, clock) as store:
        outbox = Outbox(store, channel.send)
        reporter = Reporter(channel.send)
        worker = Worker(channel, Desk(settings, store, outbox, agents(settings, clock), clock, reporter))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, worker.end, TERMINATED_GRACE_S)
        try:
            return await worker.run()
        finally:
            loop.remove_signal_handler(signal.SIGTERM)


def _roster(settings: RepoSettings, clock: Clock) -> Agents:
    return Roster(settings, Path.home(), Home.from_env(os.environ).root, clock)


def _level(settings: RepoSettings) -> str:
    level = settings.config.logs.level
    return "WARNING" if level == "warn" else level.upper()


class HomeHandler(logging.Handler):
    """Sends log records home over the pipe, from whatever thread they come."""

    def __init__(self, send: Callable[[object], None]) -> None:
        super().__init__()
        self._send = send
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"
        message = Log(tag=_TAGS.get(record.levelno, "ERR"), text=text)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._send, message)

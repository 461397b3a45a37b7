"""The worker's composition root, which the fork server's child calls. Settings come over the pipe."""

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
from datetime import datetime, timedelta
from functools import partial
from multiprocessing import current_process
from multiprocessing.connection import Connection
from pathlib import Path

from codebutler.config.paths import Home
from codebutler.config.schema import RepoSettings
from codebutler.domain.clock import Clock, SystemClock
from codebutler.domain.errors import (
    EXIT_FAILED,
    EXIT_IOERR,
    CodeButlerError,
    StoreDamagedError,
    StoreError,
    StoreTooNewError,
)
from codebutler.platform import signals
from codebutler.platform.backups import Backups, DailyBackups, directory_name
from codebutler.platform.processes import shorten_switch_interval
from codebutler.platform.signals import ignore_interrupts
from codebutler.protocol.messages import Goodbye, Log, LogTag, ToWorker
from codebutler.protocol.pipe import MessagePipe, to_worker_codec
from codebutler_worker.conversation.parked import after_restore
from codebutler_worker.conversation.workdir import remove_merged
from codebutler_worker.media.files import forget_files
from codebutler_worker.runtime.runtime import Agents, Runtime
from codebutler_worker.sandbox.person import home_of_agents
from codebutler_worker.sandbox.process import kill_orphans
from codebutler_worker.store.opening import STATE_DIR, open_on_own_thread
from codebutler_worker.store.store import Store
from codebutler_worker.worker.loop import Worker, greet
from codebutler_worker.worker.roster import Roster

TERMINATED_GRACE_S = 5.0
# An earlier worker, orphaned by its parent's death, ends its agents before it releases the store.
PREDECESSOR_S = 10.0
_TAGS: dict[int, LogTag] = {logging.DEBUG: "DBG", logging.INFO: "INF", logging.WARNING: "WRN"}


def main(connection: Connection) -> None:
    """Serve one repository over the parent's pipe, then exit: 0, 1, or 78 if a restart cannot help."""
    ignore_interrupts()
    faulthandler.enable(all_threads=True)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    shorten_switch_interval()
    signals.watch(f"worker:{current_process().name}", os.environ)
    sock = socket.socket(fileno=os.dup(connection.fileno()))
    connection.close()
    sys.exit(asyncio.run(serve(sock, SystemClock(), _roster, Home.from_env(os.environ))))


async def serve(
    sock: socket.socket, clock: Clock, agents: Callable[[RepoSettings, Clock], Agents], home: Home
) -> int:
    """Everything between the first Hello and the last Goodbye; returns the exit code.

    ``agents`` makes the repository's agents once its settings are known; ``home`` is where the store's
    backups are kept.
    """
    channel: MessagePipe[ToWorker] = await MessagePipe.over(sock, to_worker_codec())
    logger, handler = logging.getLogger("codebutler_worker"), HomeHandler(channel.send)
    logger.addHandler(handler)
    try:
        configured = await greet(channel)
        if configured is None:
            return 0
        logger.setLevel(_level(configured.settings))
        settings = configured.settings
        if settings.config.sandbox.mode == "none" and (killed := await kill_orphans()):
            # A sandbox kills its programs with the worker; without one, those of a killed worker still run.
            logger.warning("killed %d programs of a worker that no longer runs", killed)
        backups = _backups(settings, home)
        async with await open_on_own_thread(_store(settings), clock, backups, PREDECESSOR_S) as store:
            await _tell_restored(store, settings)
            runtime = Runtime(configured, home, store, agents(settings, clock), clock, channel.send)
            worker = Worker(channel, runtime)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.end, TERMINATED_GRACE_S)
            async with DailyBackups(backups, clock, logger.warning, partial(_forget_old, runtime)):
                return await worker.run()
    except CodeButlerError as error:
        channel.send(Log(tag="ERR", text=str(error)))
        channel.send(Goodbye(reason=str(error)))
        await channel.drain()
        return _exit_code(error)
    except Exception as error:  # noqa: BLE001 - the last border: it goes home as one record, and a new life begins
        channel.send(Log(tag="ERR", text=f"the worker broke: {''.join(traceback.format_exception(error))}"))
        channel.send(Goodbye(reason=repr(error)))
        await channel.drain()
        return EXIT_FAILED
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        logger.removeHandler(handler)
        channel.close()
        await channel.wait_closed()


async def _forget_old(runtime: Runtime, now: datetime) -> None:
    """Delete old rows, old files and merged worktrees. Raises StoreError."""
    await runtime.store.forget_old(now)
    oldest = now - timedelta(days=runtime.settings.config.logs.retention_days)
    await asyncio.to_thread(forget_files, Path(runtime.settings.path), oldest.timestamp())
    await remove_merged(runtime, now)


async def _tell_restored(store: Store, settings: RepoSettings) -> None:
    if (restored := store.restored) is not None:
        logging.getLogger("codebutler_worker").error("%s", restored)
        await store.run(lambda uow: after_restore(uow, restored, settings.channel_id))


def _store(settings: RepoSettings) -> Path:
    return Path(settings.path) / STATE_DIR / "store.db"


def _backups(settings: RepoSettings, home: Home) -> Backups:
    path = _store(settings)
    return Backups(home.backups / directory_name(settings.name, path), path)


def _roster(settings: RepoSettings, clock: Clock) -> Agents:
    home = home_of_agents(Path(settings.path), Path.home())
    return Roster(settings, home, Home.from_env(os.environ).root, clock)


def _exit_code(error: CodeButlerError) -> int:
    """A worker ended by a full or failing disk is restarted sooner than one that failed by itself."""
    of_the_file = isinstance(error, StoreDamagedError | StoreTooNewError)
    return EXIT_IOERR if isinstance(error, StoreError) and not of_the_file else error.exit_code


def _level(settings: RepoSettings) -> str:
    level = settings.config.logs.level
    return "WARNING" if level == "warn" else level.upper()


class HomeHandler(logging.Handler):
    """Sends log records over the pipe, from any thread."""

    def __init__(self, send: Callable[[object], None]) -> None:
        super().__init__()
        self._send = send
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record as one line; an exception becomes its repr, without a traceback."""
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"
        message = Log(tag=_TAGS.get(record.levelno, "ERR"), text=text)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._send, message)

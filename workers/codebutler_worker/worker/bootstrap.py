"""The worker's composition root, which the fork server's child calls. Settings come over the pipe.

The agents of the repository are created when they are first needed.
"""

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

from msgspec.structs import replace

from codebutler.config.git_repo import Committer
from codebutler.config.paths import Home
from codebutler.config.programs import CONFIGURED, Choice, is_headless, program_of, with_choice
from codebutler.config.schema import CommandRule, Config, RepoSettings
from codebutler.domain.clock import Clock, SystemClock
from codebutler.domain.errors import (
    EXIT_FAILED,
    EXIT_IOERR,
    AgentUnavailableError,
    CodeButlerError,
    StoreDamagedError,
    StoreError,
    StoreTooNewError,
)
from codebutler.platform import kill_points
from codebutler.platform.backups import Backups, DailyBackups, directory_name
from codebutler.platform.processes import shorten_switch_interval
from codebutler.platform.signals import ignore_interrupts
from codebutler.platform.tasks import Tasks
from codebutler.protocol.messages import Goodbye, Log, LogTag, ToWorker
from codebutler.protocol.pipe import MessagePipe, to_worker_codec
from codebutler.text.wording import count
from codebutler_worker.agents.backend import AgentBackend
from codebutler_worker.agents.claude.backend import ClaudeBackend
from codebutler_worker.agents.headless import ImageBackend
from codebutler_worker.agents.rehearsal.backend import RehearsalBackend
from codebutler_worker.agents.running import AgentContext, TurnBackend
from codebutler_worker.agents.session_logs import SessionLogs
from codebutler_worker.agents.survey import Survey
from codebutler_worker.changes.undo import UndoBackend
from codebutler_worker.conversation.parked import after_restore
from codebutler_worker.conversation.workdir import remove_merged
from codebutler_worker.internet.remote import MediaService
from codebutler_worker.media.files import forget_files
from codebutler_worker.runtime.runtime import Agents, Runtime
from codebutler_worker.runtime.turns import own_tree, prefixes_of
from codebutler_worker.sandbox.limits import AgentSandbox, Limiter, configured
from codebutler_worker.sandbox.person import ensure_home, home_of_agents, identity
from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.sandbox.process import kill_orphans
from codebutler_worker.sandbox.select import select_sandbox
from codebutler_worker.store.opening import STATE_DIR, open_on_own_thread
from codebutler_worker.store.unit_of_work import Store
from codebutler_worker.tree.tree import Git, Tree
from codebutler_worker.tree.worktrees import Worktrees, existing
from codebutler_worker.worker.loop import Worker, greet

log = logging.getLogger(__name__)

OURS = ("claude", "kimi", "native", "rehearsal")
"""The agents that need no entry in `commands`."""

TERMINATED_GRACE_S = 5.0
# An earlier worker, orphaned by its parent's death, ends its agents before it releases the store.
PREDECESSOR_S = 10.0
_TAGS: dict[int, LogTag] = {logging.DEBUG: "DBG", logging.INFO: "INF", logging.WARNING: "WRN"}


class Roster:
    """Backends by name, all behind the same sandbox.

    ``home`` is the user's home directory, ``state`` the supervisor's, which no agent may see.
    """

    def __init__(self, settings: RepoSettings, home: Path, state: Path, clock: Clock) -> None:
        self._settings = settings
        self.home = home
        self._state = state
        self._clock = clock
        self._sandbox: AgentSandbox | None = None
        self._committer = Committer(Path(settings.path), home)
        self._trees: dict[Path, Tree] = {}
        self._worktrees: Worktrees | None = None
        self._lasting: Sandbox | None = None
        self._releases = Tasks(lambda name, error: log.error("%s broke: %r", name, error))
        self._made: dict[tuple[str, Choice], AgentBackend] = {}
        self._making = asyncio.Lock()

    async def get(self, name: str, choice: Choice = CONFIGURED) -> AgentBackend:
        """The agent, as it is chosen; the first call creates it. Raises AgentUnavailableError or
        SandboxUnavailableError, and tries again at the next call: the missing program may have been installed."""
        if name == ImageBackend.name:
            # It starts no program, so it needs no sandbox.
            service = MediaService(self._settings.config.openai, self._settings.agent_env)
            return self._made.setdefault((name, CONFIGURED), ImageBackend(service))
        if name == UndoBackend.name:
            return self._made.setdefault((name, CONFIGURED), UndoBackend(self.tree))
        if (name, choice) not in self._made:
            await self._make(name, choice)
        await self._name_committer()
        return self._made[name, choice]

    async def _name_committer(self) -> None:
        """Asked each time: setting the name must not need a restart."""
        if self._sandbox is not None:
            named = await asyncio.to_thread(self._committer.env)
            self._sandbox.committer.clear()
            self._sandbox.committer.update(named)

    async def _make(self, name: str, choice: Choice) -> None:
        config = with_choice(self._settings.config, name, choice)
        if name not in OURS and _rule_of(config, name) is None:
            works = ", ".join(f"`{prefixes_of(known)[-1]}:`" for known in OURS)
            raise AgentUnavailableError(f"`{name}` is not available here yet; these are: {works}.")
        async with self._making:
            if (name, choice) not in self._made:
                settings = replace(self._settings, config=config)
                made = _created(name, settings, await self._chosen_sandbox(), self.home, self._clock)
                same = next((each for (known, _), each in self._made.items() if known == name), None)
                if isinstance(made, TurnBackend) and isinstance(same, TurnBackend):
                    made.share_sessions(same)
                self._made[name, choice] = made

    async def workdir(self, conversation: str, *, task: str | None = None) -> Path:
        """Where this conversation's turns work: in the repository, or in its own worktree, which is made for
        ``task``. Raises GitError and SandboxUnavailableError."""
        repo = Path(self._settings.path)
        if not own_tree(self._settings.config, conversation):
            return repo
        if task is None:
            return await asyncio.to_thread(existing, repo, conversation) or repo
        return await (await self.worktrees()).ensure(conversation, task)

    async def worktrees(self) -> Worktrees:
        """The conversations' worktrees. Raises SandboxUnavailableError."""
        async with self._making:
            if self._worktrees is None:
                sandbox = await self._chosen_sandbox()
                # A conversation's container holds its directory.
                release = self._lasting.release if self._lasting is not None else None
                self._worktrees = Worktrees(Path(self._settings.path), sandbox, self.home, release)
        await self._name_committer()
        return self._worktrees

    async def tree(self, workdir: Path) -> Tree:
        """The working tree at that path, behind the agents' own sandbox. Raises SandboxUnavailableError."""
        async with self._making:
            if workdir not in self._trees:
                self._trees[workdir] = Tree(Git(await self._chosen_sandbox(), workdir, self.home))
        await self._name_committer()
        return self._trees[workdir]

    async def survey(self) -> tuple[Survey, ...]:
        """Each agent, and whether it is ready."""
        # Imported here: most workers are never asked.
        from codebutler_worker.agents.rollcall import survey

        return await survey(self._settings, self.home)

    def release(self, conversation: str) -> None:
        """Start to release what the sandbox keeps for this conversation."""
        if self._lasting is not None:
            self._releases.start(self._lasting.release(conversation), name=f"release {conversation}")

    async def close(self) -> None:
        """End every process of every agent."""
        await asyncio.gather(*(backend.close() for backend in self._made.values()))
        if self._lasting is not None:
            await self._lasting.close()

    async def _chosen_sandbox(self) -> Sandbox:
        if self._sandbox is None:
            section = self._settings.config.sandbox
            idle_s = self._settings.config.agent.silence_seconds
            # The parent has already removed an untrusted file's settings.
            sandbox = await select_sandbox(
                section.mode,
                trusted=True,
                hidden=(self._state,),
                section=section,
                idle_s=idle_s,
                home=self.home,
            )
            repo = Path(self._settings.path)
            await asyncio.to_thread(ensure_home, self.home, repo)
            level, told = identity(sandbox.name, os.geteuid(), repo.stat().st_uid, str(repo))
            log.log(logging.INFO if level == "ok" else logging.WARNING, "%s", told)
            if sandbox.own_limits:
                if swept := await sandbox.sweep():
                    log.warning(
                        "removed leftovers of workers that no longer run: %s", count(swept, "container")
                    )
                log.info("each conversation has its own container")
                self._lasting = sandbox
                self._sandbox = AgentSandbox(sandbox)
                return self._sandbox
            limiter = Limiter.detect(configured(section))
            if swept := await limiter.sweep():
                log.warning("killed leftovers of workers that no longer run: %s", count(swept, "agent"))
            log.info("%s", limiter.summary(sandboxed=sandbox.name != "none"))
            self._sandbox = AgentSandbox(sandbox, limiter)
        return self._sandbox


def _rule_of(config: Config, name: str) -> CommandRule | None:
    """The program, or the agent, that ``commands`` has under that name."""
    agents = (each for each in config.commands if each.mode == "acp" or is_headless(each))
    return program_of(config, name) or next((each for each in agents if each.prefix == name), None)


def _created(name: str, settings: RepoSettings, sandbox: Sandbox, home: Path, clock: Clock) -> AgentBackend:
    """A program, an agent that `commands` names, or one of ours. Imported here: not every worker needs a terminal
    emulator, a protocol's library or the built-in agent's tools in memory."""
    rule = _rule_of(settings.config, name)
    if rule is not None and is_headless(rule):
        from codebutler_worker.agents.headless import headless_backend

        return headless_backend(rule, settings, sandbox, home, clock)
    if rule is not None and rule.mode != "acp":
        from codebutler_worker.agents.shell.backend import shell_backend

        return shell_backend(rule, settings, sandbox, home, clock)
    if rule is not None or name == "kimi":
        from codebutler_worker.agents.acp.backend import acp_backend

        return acp_backend(name, settings, sandbox, home, clock)
    if name == "native":
        from codebutler_worker.agents.native.backend import native_backend

        return native_backend(settings, sandbox, home, clock)
    if name == "rehearsal":
        return RehearsalBackend(AgentContext(sandbox, clock, logs=SessionLogs.of(settings)), home)
    context = AgentContext.of(settings, sandbox, clock)
    return ClaudeBackend(settings.config.claude, context, home, settings.agent_env)


def main(connection: Connection) -> None:
    """Serve one repository over the parent's pipe, then exit: 0, 1, or 78 if a restart cannot help."""
    ignore_interrupts()
    faulthandler.enable(all_threads=True)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    shorten_switch_interval()
    kill_points.watch(f"worker:{current_process().name}", os.environ)
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

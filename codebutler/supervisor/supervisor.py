"""Supervisor: the workers of all repositories. One repository's fault never affects another."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path
from types import TracebackType

from msgspec import Struct, structs

from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import LockHeldError, RegistryError
from codebutler.domain.refs import ConversationRef, PersonRef
from codebutler.intake.records import Entry
from codebutler.platform.system import this_system
from codebutler.protocol.conversations import Question
from codebutler.protocol.messages import LookAtPulls, StopReason, StopTurns
from codebutler.supervisor.handle import WorkerHandle
from codebutler.supervisor.lifecycle import PublicState, public
from codebutler.supervisor.port import Shared
from codebutler.supervisor.queues import T

RESTART_GRACE_S = 30.0


class WorkerRow(Struct, frozen=True, kw_only=True):
    """A worker as `codebutler status --json` shows it, all as observed by the supervisor. ``programs``: the processes
    it has started; ``undelivered``: events that it has not stored yet; ``outbox``: operations that it has not seen
    completed, by its own report."""

    state: PublicState
    pid: int | None
    restarts: int
    pss_bytes: int | None = None
    programs: int | None = None
    undelivered: int = 0
    outbox: int = 0


class TurnsRow(Struct, frozen=True, kw_only=True):
    """The number of turns by state, as the worker reports them; parked ones count as queued."""

    running: int
    queued: int
    waiting: int
    parked: int = 0


class RepoRow(Struct, frozen=True, kw_only=True):
    """A repository as `codebutler status --json` shows it. ``problem``: why its worker is not running; ``doubt``: a
    contradiction between the worker's report and what the supervisor observes. ``host``: where it is in a cluster.
    Unless given, it has no worker."""

    name: str
    path: str
    channel_id: ConversationRef
    worker: WorkerRow = WorkerRow(state="stopped", pid=None, restarts=0)
    turns: TurnsRow = TurnsRow(running=0, queued=0, waiting=0)
    problem: str = ""
    doubt: str = ""
    host: str = ""


class Supervisor:
    """All workers on this machine. ``async with Supervisor(shared) as supervisor``: leaving the block kills everything
    that still runs."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._handles: dict[str, WorkerHandle] = {}
        self._channels: dict[ConversationRef, WorkerHandle] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._started = False

    async def __aenter__(self) -> Supervisor:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown(0)

    def add(self, repo: RepoSettings) -> None:
        """Supervise ``repo`` from now on. Raises RegistryError if its name or its channel is taken."""
        if repo.name in self._handles:
            raise RegistryError(f"a repository named {repo.name} is already supervised")
        if repo.channel_id in self._channels:
            raise RegistryError(
                f"the channel of {repo.name} belongs to {self._channels[repo.channel_id].repo.name}"
            )
        handle = WorkerHandle(repo, self._shared)
        self._handles[repo.name] = self._channels[repo.channel_id] = handle
        self._tasks[repo.name] = asyncio.create_task(handle.run(), name=f"supervise:{repo.name}")
        if self._started:
            handle.start()

    async def remove(self, name: str, grace_s: float) -> None:
        """Let the worker finish and stop supervising the repository. Raises RegistryError.

        Name and channel are free again when this returns: a store has only one worker at a time.
        """
        handle = self._handle(name)
        handle.close(grace_s)
        await asyncio.gather(self._tasks[name], return_exceptions=True)
        self._handles.pop(name, None)
        self._tasks.pop(name, None)
        self._channels.pop(handle.repo.channel_id, None)

    def reconfigure(self, repo: RepoSettings, grace_s: float = RESTART_GRACE_S) -> None:
        """Apply other settings to the repository of that name. Raises RegistryError."""
        handle = self._handle(repo.name)
        other = self._channels.get(repo.channel_id, handle)
        if other is not handle:
            raise RegistryError(f"the channel of {repo.name} belongs to {other.repo.name}")
        del self._channels[handle.repo.channel_id]
        self._channels[repo.channel_id] = handle
        handle.reconfigure(repo, grace_s)

    def start(self) -> None:
        """Start the workers of all repositories, a bounded number at a time."""
        self._started = True
        for handle in self._handles.values():
            handle.start()

    async def wait_started(self) -> None:
        """Wait until every worker has become ready or failed once."""
        await asyncio.gather(*(handle.settled.wait() for handle in list(self._handles.values())))

    @property
    def is_starting(self) -> bool:
        """Whether a worker has neither become ready nor failed yet."""
        return any(not handle.settled.is_set() for handle in self._handles.values())

    def deliver(self, entry: Entry) -> None:
        """Queue an event for its channel's worker, and wake it. If the channel has none, the event just stays in the
        journal."""
        if handle := self._channels.get(entry.channel):
            handle.deliveries.add(entry)
            if handle.state == "sleeping":
                handle.wake.set()

    def tell_total(self) -> None:
        """Tell the running workers what the other repositories use."""
        for handle in self._handles.values():
            handle.tell_total()

    def stop_turns(self, name: str, user: PersonRef) -> None:
        """End all its running turns and withdraw the queued ones; ``user`` is named as the person who did. Raises
        RegistryError."""
        self._handle(name).tell(StopTurns(user=user))

    def look_at_pulls(self, name: str, numbers: tuple[int, ...]) -> None:
        """There is news of these pull requests of the repository, none = of any."""
        if handle := self._handles.get(name):
            handle.tell(LookAtPulls(numbers=numbers))

    def wake(self, name: str) -> None:
        """Start the repository's worker now if it does not run, and forget earlier deaths. Raises RegistryError."""
        self._handle(name).start()

    def restart(self, name: str, grace_s: float = RESTART_GRACE_S) -> None:
        """End the repository's worker, which may finish what runs within ``grace_s``, and start it again. Raises
        RegistryError."""
        self._handle(name).restart(grace_s)

    async def ask(self, name: str, question: Question, kind: type[T]) -> T:
        """What the repository's worker answers. Raises CodeButlerError if it does not, RegistryError."""
        return await self._handle(name).ask(question, kind)

    def down(self, name: str) -> str:
        """Why the repository's worker stays down; "" while it runs, sleeps or is about to, and for an unknown name."""
        handle = self._handles.get(name)
        return handle.problem if handle is not None and handle.state in ("stopped", "quarantined") else ""

    def rows(self) -> tuple[RepoRow, ...]:
        """Every repository, in the order they were added; without memory figures."""
        return tuple(_row(handle) for handle in self._handles.values())

    async def status(self) -> tuple[RepoRow, ...]:
        """Every repository, with each worker's memory and programs if they can be determined."""
        return await asyncio.to_thread(_with_processes, self.rows())

    async def cluster(self) -> None:
        """None: everything is on this machine."""

    @property
    def mover(self) -> None:
        """None: a single machine has no other to move to."""

    @property
    def outbox_pending(self) -> int:
        """How many operations the workers have not seen completed, by their last report."""
        return sum(handle.load.outbox for handle in self._handles.values())

    async def shutdown(self, grace_s: float, reason: StopReason = "shutdown") -> None:
        """End all workers: each finishes within ``grace_s`` seconds or is killed (0: now). At a "restart" the next one
        resumes what this one could not finish.

        A second call while the first is still waiting shortens the wait.
        """
        for handle in self._handles.values():
            handle.close(grace_s, reason)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _handle(self, name: str) -> WorkerHandle:
        handle = self._handles.get(name)
        if handle is None:
            raise RegistryError(f"no repository named {name} is supervised: see `codebutler repos`")
        return handle


def _row(handle: WorkerHandle) -> RepoRow:
    load = handle.load
    return RepoRow(
        name=handle.repo.name,
        path=handle.repo.path,
        channel_id=handle.repo.channel_id,
        worker=WorkerRow(
            state=public(handle.state),
            pid=handle.pid,
            restarts=handle.restarts,
            undelivered=handle.undelivered,
            outbox=load.outbox,
        ),
        turns=TurnsRow(running=load.running, queued=load.queued, waiting=load.waiting, parked=load.parked),
        problem=handle.problem,
    )


def _with_processes(rows: tuple[RepoRow, ...]) -> tuple[RepoRow, ...]:
    """Add what the system reports about each worker's process. Blocks."""
    used = this_system().use_of([row.worker.pid for row in rows if row.worker.pid is not None])
    measured = []
    for row in rows:
        if row.worker.pid is not None and (use := used.get(row.worker.pid)) is not None:
            worker = structs.replace(row.worker, pss_bytes=use.memory_bytes, programs=use.programs)
            row = structs.replace(row, worker=worker, doubt=doubt_of(row.turns, use.programs))  # noqa: PLW2901 - the same row, completed
        measured.append(row)
    return tuple(measured)


def doubt_of(turns: TurnsRow, programs: int) -> str:
    """Why the worker's report of its turns is not plausible, "" if it matches what we observe. Pure."""
    if programs and not turns.running:
        begun = (
            "a program that it started is" if programs == 1 else f"{programs} programs that it started are"
        )
        return f"its worker reports that nothing runs, but {begun} still running"
    return ""


class SupervisorLock:
    """Holds ``path`` from enter to exit. The descriptor is close-on-exec: no orphaned child keeps it locked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> SupervisorLock:
        """Raises LockHeldError, naming the holder's pid, if another process has it."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _pid_in(fd)
            os.close(fd)
            raise LockHeldError(
                f"a supervisor already runs on {self._path.parent} (pid {holder or 'unknown'}): "
                "stop it first, or use `codebutler status`",
                holder,
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


def is_held(path: Path) -> bool:
    """Whether a supervisor is running, as far as we can tell."""
    try:
        with SupervisorLock(path):
            return False
    except LockHeldError:
        return True
    except OSError:
        return False


def _pid_in(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).decode(errors="replace").strip()
    return int(text) if text.isdigit() else None

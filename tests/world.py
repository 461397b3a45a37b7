"""Parent and worker in one loop, over a workspace in memory: each may die at any moment and starts again.

Everything but the process boundary and Slack is real: journal, intake, supervisor, pipe, worker, store, sender.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.port import Download
from codebutler.config.chats import SlackSection
from codebutler.config.paths import Home
from codebutler.config.permission import Decision
from codebutler.config.schema import AgentSection, Config, OutputSection, RepoSettings
from codebutler.domain.model import Event, Operation, Quoted, Request
from codebutler.intake.intake import Intake, Outcome
from codebutler.intake.journal import Journal
from codebutler.intake.repos import Repo
from codebutler.observe.chain import AuditAct
from codebutler.protocol.capabilities import HostReport
from codebutler.protocol.messages import LogTag, ToParent, TotalUse, TurnEnded
from codebutler.protocol.pipe import MessagePipe, to_parent_codec
from codebutler.supervisor.lifecycle import Policy
from codebutler.supervisor.port import News, Shared
from codebutler.supervisor.supervisor import Supervisor
from codebutler_worker.worker.bootstrap import serve
from tests.clock import ManualClock
from tests.memory_chat import MemoryChat
from tests.notes import Notes
from tests.worker_kit import CHANNEL, USER, OneAgent, Run, ScriptedBackend

# As in a test of minutes, not of hours: nobody is quarantined, and a dead worker is back after a second.
RESILIENT = Policy(longest_delay_s=1.0, deaths=10_000)
STEP_S = 0.1
PATIENCE_S = 20.0


class TaskWorker:
    """A worker that is a task: the WorkerLink of this world.

    SIGKILL cuts its pipe, wherever it is: nothing it says or is told gets through any more, and it ends. (That
    the process itself may vanish at any point is for the kill points.)
    """

    def __init__(self, channel: MessagePipe[ToParent], serving: asyncio.Task[int]) -> None:
        self.pid = os.getpid()
        self._channel = channel
        self._dead: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        serving.add_done_callback(self._bury)

    def _bury(self, serving: asyncio.Task[int]) -> None:
        broken = serving.cancelled() or serving.exception() is not None
        self._dead.set_result(-signal.SIGKILL if broken else serving.result())

    @property
    def unread_bytes(self) -> int:
        return self._channel.unread_bytes

    def messages(self, admit: Callable[[int], Awaitable[None]] | None = None) -> AsyncIterator[ToParent]:
        return self._channel.messages(admit)

    async def printed(self) -> AsyncIterator[str]:
        silent: tuple[str, ...] = ()
        for line in silent:
            yield line
        await self.wait_dead()

    def send(self, message: object) -> None:
        self._channel.send(message)

    async def drain(self) -> None:
        await self._channel.drain()

    async def wait_dead(self) -> int:
        return await asyncio.shield(self._dead)

    def kill(self, signal_number: int) -> None:
        if signal_number == signal.SIGKILL and not self._dead.done():
            self._channel.close()

    def close(self) -> None:
        self._channel.close()


class Books:
    """The parent's services and refusals: operations go to the sender, receipts to the journal."""

    def __init__(self, sender: Sender, journal: Journal) -> None:
        self._sender = sender
        self._journal = journal
        self.errors: list[str] = []

    async def send(self, repo: RepoSettings, op_id: str, operation: Operation, *, unsure: bool) -> str:
        return await self._sender.submit(repo.channel_id, op_id, operation, unsure=unsure)

    async def fetch(
        self, repo: RepoSettings, file_id: str, take: Callable[[bytes], Awaitable[None]]
    ) -> Download:
        raise NotImplementedError

    def show(self, repo: RepoSettings, news: News) -> None:
        """Nobody looks here."""

    async def turn_ended(self, repo: RepoSettings, ended: TurnEnded) -> None:
        """Nobody waits for a message here."""

    async def thread(
        self, repo: RepoSettings, thread_ts: str, before_ts: str
    ) -> tuple[tuple[Quoted, ...], int]:
        raise NotImplementedError

    async def reported(self, repo: RepoSettings, report: HostReport) -> None:
        raise NotImplementedError

    def runs_known(self, repo: RepoSettings) -> str | None:
        return None

    async def settle(self, seq: int) -> None:
        await self._journal.settle(seq)

    def total(self, repo: RepoSettings) -> TotalUse | None:
        return None

    async def quarantined(self, repo: RepoSettings, why: str) -> None:
        self.errors.append(why)

    def audit(self, act: AuditAct) -> None:
        return

    def log(self, repo: str, tag: LogTag, text: str) -> None:
        if tag == "ERR":
            self.errors.append(text)

    def refused(self, event: Event, request: Request, decision: Decision, *, tell: bool) -> None:
        self.errors.append(f"refused: {decision.reason}")

    def commanded(self, event: Event, request: Request) -> None:
        return

    def counted(self, outcome: Outcome, seconds: float) -> None:
        pass

    def no_space(self, event: Event) -> None:
        self.errors.append("no space")


class World:
    """``start`` a parent, ``accept`` events, let it ``die``; the workspace and the files outlive it."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock()
        self.chat = MemoryChat()
        self.backends: list[ScriptedBackend] = []
        self.books: list[Books] = []
        self.unacknowledged: list[Event] = []
        self.journal: Journal | None = None
        self._root = root
        self._repo = root / "repo"
        self._repo.mkdir()
        config = Config(
            agent=AgentSection(debounce_seconds=0),
            output=OutputSection(verbosity="normal"),
            slack=SlackSection(allowed_users=(USER,)),
        )
        self._settings = RepoSettings(name="sample", path=str(self._repo), channel_id=CHANNEL, config=config)
        self._stack = AsyncExitStack()
        self._links: list[TaskWorker] = []
        self._intake: Intake | None = None
        self._sender: Sender | None = None

    @property
    def store(self) -> Path:
        return self._repo / ".codebutler" / "store.db"

    @property
    def runs(self) -> list[Run]:
        """Every turn that any agent was ever started for."""
        return [run for backend in self.backends for run in backend.runs]

    @property
    def active(self) -> list[Run]:
        return [run for run in self.runs if not run.closed.is_set()]

    @property
    def quiet(self) -> bool:
        """Whether the parent has nothing under way."""
        assert self.journal is not None
        assert self._sender is not None
        return self.journal.pending_count == 0 and self._sender.pending == 0

    async def start(self) -> None:
        """A parent with its worker; what it had not acknowledged comes again."""
        self.journal = Journal.open(self._root / "journal.db", self.clock)
        self._stack.push_async_callback(self.journal.close)
        sender = Sender(self.chat, self.clock, Editor(lambda text: text), Notes(), rng=Random(1))
        self._sender = await self._stack.enter_async_context(sender)
        books = Books(sender, self.journal)
        self.books.append(books)
        shared = Shared(self.spawn, books, self.clock, lambda: 0.0, policy=RESILIENT)
        supervisor = await self._stack.enter_async_context(Supervisor(shared))
        supervisor.add(self._settings)
        supervisor.start()
        self._intake = Intake(
            repos={CHANNEL: Repo("sample", self._settings.config)},
            journal=self.journal,
            dispatch=supervisor.deliver,
            refusals=books,
            clock=self.clock,
        )
        await self._intake.resume()
        for event in list(self.unacknowledged):
            await self.accept(event)

    async def spawn(self, name: str) -> TaskWorker:
        """The supervisor's Spawner."""
        backend = ScriptedBackend(self.clock)
        self.backends.append(backend)
        ours, theirs = socket.socketpair()
        home = Home(self._root / "home")
        serving = asyncio.create_task(
            serve(theirs, self.clock, lambda settings, _clock: OneAgent(backend, settings), home),
            name=name,
        )
        link = TaskWorker(await MessagePipe.over(ours, to_parent_codec()), serving)
        self._links.append(link)
        return link

    async def accept(self, event: Event) -> None:
        """Deliver an event; it counts as acknowledged once this returns."""
        assert self._intake is not None
        if event not in self.unacknowledged:
            self.unacknowledged.append(event)
        await self._intake.accept(event)
        self.unacknowledged.remove(event)

    def kill_worker(self) -> None:
        if self._links:
            self._links[-1].kill(signal.SIGKILL)

    async def kill_parent(self) -> None:
        """The parent is gone; its worker finds its pipe closed and goes, too."""
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()
        for link in self._links:
            await link.wait_dead()
        self._links.clear()

    async def passes(self, steps: int) -> None:
        """Let the world move a little: other threads commit, time goes on."""
        for _ in range(steps):
            await self.clock.advance(STEP_S)
            await asyncio.sleep(0.001)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the world move until ``condition`` holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self.passes(1)

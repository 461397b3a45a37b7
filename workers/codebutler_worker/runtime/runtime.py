"""What everything in a worker works with: its settings, its store, its agents, and the one place to commit.

``Runtime.commit`` is the only way to change anything: the rows and what is to be said about them are one
transaction, and the saying starts after the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol, TypeVar
from uuid import uuid4

from codebutler.config.paths import Home
from codebutler.config.schema import RepoSettings
from codebutler.config.secrets import secrets_in
from codebutler.domain.clock import Clock
from codebutler.domain.errors import StoreError
from codebutler.domain.model import Operation
from codebutler.platform.killpoints import reached
from codebutler.platform.tasks import settled_within
from codebutler.protocol.messages import FetchThread, Log, LogTag, ThreadFetched, TurnEnded
from codebutler.text.redact import Redactor
from codebutler_worker.agents.backend import AgentBackend
from codebutler_worker.agents.survey import Survey
from codebutler_worker.internet.remote import MediaService
from codebutler_worker.media.files import Fetcher
from codebutler_worker.runtime.outbox import Outbox
from codebutler_worker.skills import Library
from codebutler_worker.store.rows import OutboxRow
from codebutler_worker.store.store import Store
from codebutler_worker.store.unit_of_work import UnitOfWork
from codebutler_worker.tree.tree import Tree

T = TypeVar("T")
STORE_RETRY_S = 5.0
THREAD_S = 20.0


class Agents(Protocol):
    """The agents of this repository by name."""

    async def get(self, name: str) -> AgentBackend:
        """Raises CodeButlerError with one line that says what to do."""

    async def workdir(self, conversation: str, *, task: str | None = None) -> Path:
        """Where this conversation's turns work: in the repository, or in a worktree of its own, which is made for
        ``task``. Raises CodeButlerError with one line."""

    async def tidy(self, conversation: str) -> str:
        """Take its worktree away if nothing was changed there; the branch of one that stays, else "". Nothing may run
        in it. Raises CodeButlerError."""

    async def tree(self, workdir: Path) -> Tree:
        """The working tree there. Raises SandboxUnavailableError."""

    async def survey(self) -> tuple[Survey, ...]:
        """Each agent, and whether it could work now."""

    def release(self, conversation: str) -> None:
        """Begin to take away what was kept for this conversation."""

    async def close(self) -> None:
        """End every process of every agent."""


class Runtime:
    """One worker's. ``send`` takes what goes to the parent, and never blocks; no file below ``home`` is ever posted in
    chat."""

    def __init__(
        self,
        settings: RepoSettings,
        home: Home,
        store: Store,
        agents: Agents,
        clock: Clock,
        send: Callable[[object], None],
    ) -> None:
        self.settings = settings
        self.private = (home.root,)
        self.skills = Library(settings, home)
        self.store = store
        self.agents = agents
        self.clock = clock
        self.send = send
        self.outbox = Outbox(store, send)
        self.fetcher = Fetcher(send, clock)
        self.threads = ThreadReader(send, clock)
        self.media = MediaService(settings.config.openai, settings.agent_env)
        self._commits: set[asyncio.Task[None]] = set()

    @cached_property
    def redactor(self) -> Redactor:
        """Takes out of what agents and programs say the secrets that this worker was told, and what looks like one."""
        return Redactor(secrets_in(self.settings))

    def log(self, tag: LogTag, text: str) -> None:
        """One line for the log, under the repository's name."""
        self.send(Log(tag=tag, text=text))

    def broke(self, name: str, error: BaseException) -> None:
        """A task in the background failed, which is a fault of ours."""
        self.log("ERR", f"{name} broke: {error!r}")

    async def commit(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run ``work`` as one transaction, then send the operations that it added.

        A caller that is cancelled meanwhile leaves the commit and its sending to end on their own: a row that
        is committed but not sent would stay unsaid until the next start. Raises StoreError.
        """
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._commit(work, result), name="commit")
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)
        return await result

    async def commit_surely(self, work: Callable[[UnitOfWork], T], what: str) -> T:
        """The same, tried until the store takes it: a full disk must not cost ``what``, which is logged."""
        while True:
            try:
                return await self.commit(work)
            except StoreError as error:
                self.log("ERR", f"{what} waits for the store: {error}")
                await self.clock.sleep(STORE_RETRY_S)

    async def close(self) -> None:
        """Wait for the commits under way."""
        await asyncio.gather(*self._commits)

    async def _commit(self, work: Callable[[UnitOfWork], T], result: asyncio.Future[T]) -> None:
        try:
            value, operations = await self.store.run(partial(_with_operations, work), self.redactor.redact)
            if operations:
                reached("outbox.after")
                await self.outbox.publish(operations)
        except Exception as error:  # noqa: BLE001 - it is the caller's, who waits for it in the future
            if not result.done():
                result.set_exception(error)
            return
        if not result.done():
            result.set_result(value)


def _with_operations(
    work: Callable[[UnitOfWork], T], uow: UnitOfWork
) -> tuple[T, list[tuple[OutboxRow, Operation | TurnEnded]]]:
    value = work(uow)
    if uow.operations:
        reached("outbox.before")
    return value, uow.operations


class ThreadReader:
    """One per worker."""

    def __init__(self, send: Callable[[object], None], clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._coming: dict[str, asyncio.Future[ThreadFetched]] = {}

    async def read(self, thread_ts: str, before_ts: str) -> ThreadFetched:
        """The answer, of which ``code`` says why nothing came; also after 20 seconds of waiting."""
        request_id = uuid4().hex
        coming: asyncio.Future[ThreadFetched] = asyncio.get_running_loop().create_future()
        self._coming[request_id] = coming
        self._send(FetchThread(request_id=request_id, thread_ts=thread_ts, before_ts=before_ts))
        try:
            if not await settled_within(self._clock, coming, THREAD_S):
                return ThreadFetched(request_id=request_id, code="timeout")
            return coming.result()
        finally:
            del self._coming[request_id]

    def take(self, message: ThreadFetched) -> None:
        """What the parent says; an answer that nobody waits for any more is let go."""
        coming = self._coming.get(message.request_id)
        if coming is not None and not coming.done():
            coming.set_result(message)

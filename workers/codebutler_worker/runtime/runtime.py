"""The base of everything in a worker: its settings, its store, its agents, and the one place to commit.

``Runtime.commit`` is the only way to change anything: rows and operations are one transaction, and sending
starts after the commit.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from codebutler.config.paths import Home
from codebutler.config.programs import CONFIGURED, Choice
from codebutler.config.resolve import secrets_in
from codebutler.domain.clock import Clock
from codebutler.domain.errors import StoreError
from codebutler.domain.model import Event, MessagePosted
from codebutler.domain.refs import MessageRef
from codebutler.platform.signals import reached
from codebutler.protocol.conversations import MOST_SPANS, SpanName, Traced, WorkSpan
from codebutler.protocol.messages import Configure, DayUse, Log, LogTag, TotalUse
from codebutler.text.redact import Redactor
from codebutler_worker.agents.backend import AgentBackend, AgentEvent, ToolResult, ToolUse
from codebutler_worker.agents.survey import Survey
from codebutler_worker.internet.remote import MediaService
from codebutler_worker.media.files import Fetcher
from codebutler_worker.runtime.outbox import Outbox
from codebutler_worker.skills import Library
from codebutler_worker.store.unit_of_work import Store, UnitOfWork
from codebutler_worker.tree.tree import Tree
from codebutler_worker.tree.worktrees import Worktrees

T = TypeVar("T")
STORE_RETRY_S = 5.0
NOTHING_TOLD = TotalUse(day=DayUse(), until="", month=DayUse(), month_until="")


class Agents(Protocol):
    """The agents of this repository by name. ``home`` is the HOME of their programs."""

    home: Path

    async def get(self, name: str, choice: Choice = CONFIGURED) -> AgentBackend:
        """With the model and the mode of ``choice``. Raises CodeButlerError with one line that says what to do."""

    async def workdir(self, conversation: str, *, task: str | None = None) -> Path:
        """Where this conversation's turns work: in the repository, or in its own worktree, which is made for
        ``task``. Raises CodeButlerError with one line."""

    async def worktrees(self) -> Worktrees:
        """The conversations' worktrees. Raises SandboxUnavailableError."""

    async def tree(self, workdir: Path) -> Tree:
        """The working tree at that path. Raises SandboxUnavailableError."""

    async def survey(self) -> tuple[Survey, ...]:
        """Each agent, and whether it is ready."""

    def release(self, conversation: str) -> None:
        """Start to release what is kept for this conversation."""

    async def close(self) -> None:
        """End every process of every agent."""


class Runtime:
    """One worker's runtime. ``send`` passes messages to the parent and never blocks; no file below ``home``
    is ever posted."""

    def __init__(
        self,
        configured: Configure,
        home: Home,
        store: Store,
        agents: Agents,
        clock: Clock,
        send: Callable[[object], None],
    ) -> None:
        self.settings = settings = configured.settings
        self.home = home
        self.private = (home.root,)
        self.followed = asyncio.Event()
        """Set when there is a new pull request to follow."""
        self.pushed: set[str] = set()
        """Commits that were pushed since this worker started, or are about to be."""
        self.skills = Library(settings, home)
        self.store = store
        self.agents = agents
        self.clock = clock
        self.send = send
        self.outbox = Outbox(store, send)
        self.fetcher = Fetcher(send, clock)
        self.elsewhere = configured.total or NOTHING_TOLD
        """What the other repositories have used, as the parent last reported."""
        self.traces = Traces(clock, send)
        self.media = MediaService(settings.config.openai, settings.agent_env)
        self._commits: set[asyncio.Task[Any]] = set()

    @cached_property
    def redactor(self) -> Redactor:
        """Removes from agents' and programs' text this worker's secrets, and what looks like a secret."""
        return Redactor(secrets_in(self.settings))

    def log(self, tag: LogTag, text: str) -> None:
        """One line for the log, under the repository's name."""
        self.send(Log(tag=tag, text=text))

    def broke(self, name: str, error: BaseException) -> None:
        """Log that a background task failed, which is a bug of ours."""
        self.log("ERR", f"{name} broke: {error!r}")

    async def commit(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run ``work`` as one transaction, then send its operations.

        If the caller is cancelled meanwhile, commit and sending still finish: a committed row that was not
        sent would wait until the next start. Raises StoreError.
        """
        task = asyncio.create_task(self._commit(work), name="commit")
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)
        return await asyncio.shield(task)

    async def commit_surely(self, work: Callable[[UnitOfWork], T], what: str) -> T:
        """The same, retried until the store takes it: a full disk must not lose ``what``, which is logged."""
        while True:
            try:
                return await self.commit(work)
            except StoreError as error:
                self.log("ERR", f"{what} is waiting for the store: {error}")
                await self.clock.sleep(STORE_RETRY_S)

    async def close(self) -> None:
        """Wait for the commits under way."""
        await asyncio.gather(*self._commits, return_exceptions=True)

    async def _commit(self, work: Callable[[UnitOfWork], T]) -> T:
        value, operations = await self.store.transact(work, self.redactor.redact)
        if operations:
            reached("outbox.after")
            await self.outbox.publish(operations)
        return value


# The parts of a run for the parent's trace: queued, the agent, its tools. Without a trace none of it exists.

MOST_WAITING = 1000
MOST_TOOLS = MOST_SPANS - 2
PLAIN = re.compile(r"[A-Za-z0-9_.:-]{1,60}")


class Traces:
    """Messages that came with a trace and whose run has not started. It ends with the process."""

    def __init__(self, clock: Clock, send: Callable[[object], None]) -> None:
        self._clock = clock
        self._send = send
        self.open: OrderedDict[MessageRef, tuple[str, int]] = OrderedDict()

    def came(self, event: Event, trace: str) -> None:
        """The event is stored, and its run can be queued."""
        if isinstance(event, MessagePosted):
            self.open[event.ref] = trace, _now(self._clock)
            while len(self.open) > MOST_WAITING:
                self.open.popitem(last=False)

    def begin(self, messages: Iterable[MessageRef], agent: str) -> RunTrace | None:
        """A run for these messages begins; None without a trace. It is in the first one's trace; the others' show how
        long they were queued."""
        traced = [self.open.pop(ref) for ref in messages if ref in self.open]
        if not traced:
            return None
        now = _now(self._clock)
        for trace, came in traced[1:]:
            self._send(Traced(trace=trace, spans=(WorkSpan(name="queued", began=came, ended=now),)))
        return RunTrace(self._clock, self._send, *traced[0], agent)


class RunTrace:
    """One run's parts, sent at its end."""

    def __init__(
        self, clock: Clock, send: Callable[[object], None], trace: str, came: int, agent: str
    ) -> None:
        self._clock = clock
        self._send = send
        self._trace = trace
        self._began = _now(clock)
        self._agent = agent
        self._spans = [WorkSpan(name="queued", began=came, ended=self._began)]
        self._tools: dict[str, tuple[str, int]] = {}

    def heard(self, event: AgentEvent) -> None:
        """The agent does something."""
        if isinstance(event, ToolUse) and len(self._spans) + len(self._tools) < MOST_TOOLS:
            self._tools[event.id] = event.name, _now(self._clock)
        elif isinstance(event, ToolResult) and (found := self._tools.pop(event.id, None)) is not None:
            self._add("tool", found[1], found[0])

    def end(self) -> None:
        """The run has its result."""
        for name, began in self._tools.values():
            self._add("tool", began, name)
        self._add("agent", self._began, self._agent)
        self._send(Traced(trace=self._trace, spans=tuple(self._spans)))

    def _add(self, name: SpanName, began: int, label: str) -> None:
        # An agent may name a tool as it likes.
        label = label if PLAIN.fullmatch(label) else ""
        self._spans.append(WorkSpan(name=name, began=began, ended=_now(self._clock), label=label))


def _now(clock: Clock) -> int:
    return int(clock.now().timestamp() * 1_000_000) * 1000

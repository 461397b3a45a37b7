"""A whole worker in the test's own loop: real store, real pipe, scripted agent, and a parent to talk to."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from codebutler.chat.slack.render import REACTIONS
from codebutler.config.chats import SlackSection
from codebutler.config.paths import Home
from codebutler.config.programs import CONFIGURED, Choice
from codebutler.config.schema import (
    AgentSection,
    ApprovalsSection,
    ChecksSection,
    Config,
    OutputSection,
    RepoSettings,
)
from codebutler.domain.clock import Clock
from codebutler.domain.errors import AgentUnavailableError
from codebutler.domain.model import (
    Event,
    NoRequest,
    Operation,
    Post,
    Prompt,
    React,
    Request,
    Update,
)
from codebutler.protocol.messages import (
    Configure,
    Deliver,
    Goodbye,
    Heartbeat,
    Hello,
    Log,
    Ready,
    Send,
    Sent,
    Shutdown,
    Stored,
    ToParent,
    TotalUse,
    TurnEnded,
)
from codebutler.protocol.pipe import MessagePipe, to_parent_codec
from codebutler_worker.agents.backend import (
    AgentBackend,
    AgentEvent,
    Answer,
    Finished,
    Started,
    TurnRequest,
    Usage,
)
from codebutler_worker.agents.survey import Survey
from codebutler_worker.changes.undo import UndoBackend
from codebutler_worker.runtime.runtime import Agents
from codebutler_worker.runtime.turns import own_tree
from codebutler_worker.tree.tree import Git, Tree
from codebutler_worker.tree.worktrees import Worktrees, existing
from codebutler_worker.worker.bootstrap import serve
from tests.clock import ManualClock, settle
from tests.events import posted
from tests.shown import text_of
from tests.walls import as_it_is

CHANNEL = "C0REPO"
USER = "U0ANA"
PEOPLE = (USER, "U0BEN", "U0BOB", "U0CARL", "U0EVE")
"""Who may talk to it."""
DEADLINE_S = 20.0
M = TypeVar("M")


class Run:
    """One turn at the scripted agent; the test says what the agent does."""

    def __init__(self, request: TurnRequest, started_s: float) -> None:
        self.request = request
        self.started_s = started_s
        self.events: asyncio.Queue[AgentEvent | Exception] = asyncio.Queue()
        self.closed = asyncio.Event()
        self.leave = asyncio.Event()  # its program ends at once, unless the test clears this
        self.leave.set()

    def does(self, *events: AgentEvent) -> None:
        for event in events:
            self.events.put_nowait(event)

    def finish(self, text: str = "Done.", session_id: str = "session-1", usage: Usage | None = None) -> None:
        """Take the turn, answer, end."""
        self.does(Started(session_id), Finished(True, text, "done", usage or Usage(12, 34, 0.12, 3), 0.12))


class ScriptedBackend(AgentBackend):
    """An agent whose every move is the test's."""

    name = "claude"

    def __init__(self, clock: Clock) -> None:
        self.runs: list[Run] = []
        self.answers: list[tuple[str, Answer]] = []
        self.steered: list[str] = []
        self.released: list[str] = []
        self.chosen: list[tuple[str, Choice]] = []
        self.takes_steering = False
        self.may_be_steered = asyncio.Event()
        self.may_be_steered.set()
        self.obeys_stop = True
        self.survey_waits = False
        self.changed = asyncio.Event()
        self._clock = clock

    async def start(self, turn: TurnRequest) -> AsyncGenerator[AgentEvent]:
        run = Run(turn, self._clock.monotonic())
        self.runs.append(run)
        self.changed.set()
        try:
            while True:
                event = await run.events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if isinstance(event, Finished):
                    await run.leave.wait()
                    return
        finally:
            run.closed.set()

    async def answer(self, turn_id: str, request_id: str, answer: Answer) -> bool:
        self.answers.append((request_id, answer))
        return True

    async def steer(self, turn_id: str, text: str) -> bool:
        self.steered.append(text)
        await self.may_be_steered.wait()
        return self.takes_steering

    async def stop(self, turn_id: str) -> None:
        for run in self.runs:
            if run.request.turn_id == turn_id and self.obeys_stop:
                run.does(Finished(False, "", "stopped"))

    async def close(self) -> None:
        return


class OneAgent:
    """Only ``claude``, ``rehearsal`` and ``checks`` work here, all scripted; undoing is real, without walls."""

    def __init__(self, backend: ScriptedBackend, settings: RepoSettings) -> None:
        self.backend = backend
        repo = Path(settings.path)
        self._repo = repo
        self.home = repo / ".codebutler" / "home"
        self._config = settings.config
        self._worktrees = Worktrees(repo, as_it_is(), self.home)
        self._undo = UndoBackend(self.tree)

    async def get(self, name: str, choice: Choice = CONFIGURED) -> AgentBackend:
        self.backend.chosen.append((name, choice))
        if name == "undo":
            return self._undo
        if name not in ("claude", "rehearsal", "checks"):
            raise AgentUnavailableError(f"{name} does not work here: use claude")
        return self.backend

    async def workdir(self, conversation: str, *, task: str | None = None) -> Path:
        if not own_tree(self._config, conversation):
            return self._repo
        if task is not None:
            return await self._worktrees.ensure(conversation, task)
        return existing(self._repo, conversation) or self._repo

    async def worktrees(self) -> Worktrees:
        return self._worktrees

    async def tree(self, workdir: Path) -> Tree:
        return Tree(Git(as_it_is(), workdir, self.home))

    async def survey(self) -> tuple[Survey, ...]:
        while self.backend.survey_waits:
            await self.backend.changed.wait()
        claude = Survey("claude", ready=True, version="1.2.3", commands=("greet",))
        return (claude, Survey("kimi", ready=False, note="install it"))

    def release(self, conversation: str) -> None:
        self.backend.released.append(conversation)

    async def close(self) -> None:
        await self.backend.close()


@dataclass
class Parent:
    """The other end of the pipe: collects what the worker says and does what it asks, unless ``mute``, and not
    what is ``withheld``."""

    channel: MessagePipe[ToParent]
    clock: ManualClock
    backend: ScriptedBackend
    mute: bool = False
    withheld: tuple[type[Operation | TurnEnded], ...] = ()
    heard: list[ToParent] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    _seq: int = 0
    _ts: int = 0
    _answered: dict[str, str] = field(default_factory=dict)

    async def listen(self) -> None:
        async for message in self.channel.messages():
            self.heard.append(message)
            if isinstance(message, Send) and not (self.mute or isinstance(message.operation, self.withheld)):
                self.take(message)
            if isinstance(message, TurnEnded) and not (self.mute or TurnEnded in self.withheld):
                self.channel.send(Sent(op_id=message.op_id, ref=""))
            self.news.set()

    def take(self, send: Send) -> str:
        """Do the operation: a post gets a ts."""
        if send.op_id not in self._answered:
            is_post = isinstance(send.operation, Post)
            self._ts += is_post
            self._answered[send.op_id] = f"9000.{self._ts:06d}" if is_post else ""
        ts = self._answered[send.op_id]
        self.channel.send(Sent(op_id=send.op_id, ref=ts))
        return ts

    def ts_of(self, op_id: str) -> str:
        """Where a post ended up."""
        return self._answered[op_id]

    def deliver(self, event: Event, request: Request | None = None) -> int:
        self._seq += 1
        self.channel.send(Deliver(seq=self._seq, event=event, request=request or NoRequest()))
        return self._seq

    def says(
        self,
        text: str,
        ts: str,
        thread_ts: str | None = None,
        *,
        prefix: str | None = None,
        late: bool = False,
        user: str = USER,
    ) -> int:
        """A person writes to the agent."""
        event = posted(channel=CHANNEL, ref=ts, user=user, text=text, thread=thread_ts, late=late)
        return self.deliver(event, Prompt(text=text, prefix=prefix))

    async def until(self, condition: Callable[[], M], *, flow: bool = False) -> M:
        """Wait until ``condition`` holds; with ``flow`` the manual clock runs meanwhile."""
        async with asyncio.timeout(DEADLINE_S):
            while not (result := condition()):
                if flow:
                    await self.clock.advance(0.1)
                await settle(5)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.005):
                        await self.news.wait()
                self.news.clear()
            return result

    async def stored(self, seq: int) -> None:
        await self.until(lambda: any(isinstance(m, Stored) and m.seq == seq for m in self.heard))

    async def run(self, number: int, *, flow: bool = True) -> Run:
        """The agent's turn ``number`` (from 0), once it has begun."""
        await self.until(lambda: len(self.backend.runs) > number, flow=flow)
        return self.backend.runs[number]

    def said(self, kind: type[M]) -> list[M]:
        return [message for message in self.heard if isinstance(message, kind)]

    def is_idle(self) -> bool:
        """Whether the worker's latest heartbeat tells of nothing to do."""
        beats = self.said(Heartbeat)
        return bool(beats) and not (beats[-1].running or beats[-1].queued or beats[-1].outbox)

    @property
    def operations(self) -> list[object]:
        return [message.operation for message in self.said(Send)]

    @property
    def posts(self) -> list[Post]:
        return [operation for operation in self.operations if isinstance(operation, Post)]

    @property
    def updates(self) -> list[Update]:
        return [operation for operation in self.operations if isinstance(operation, Update)]

    def reactions(self, ts: str) -> list[str]:
        """The reactions that a message would show in Slack now."""
        shown: list[str] = []
        for react in self.operations:
            if isinstance(react, React) and react.target == ts:
                shown = [name for name in shown if name != REACTIONS[react.mark]]
                shown += [] if react.remove else [REACTIONS[react.mark]]
        return shown

    async def post_with(self, text: str) -> Post:
        """The first post whose text contains ``text``, once it is there."""
        return (await self.until(lambda: [post for post in self.posts if text in text_of(post)], flow=True))[
            0
        ]

    def logs(self, tag: str) -> list[str]:
        return [message.text for message in self.said(Log) if message.tag == tag]

    async def shut_down(self, reason: str = "shutdown", grace_s: float = 3.0) -> Goodbye:
        self.channel.send(Shutdown(reason=reason, grace_s=grace_s))  # type: ignore[arg-type]  # any word
        return (await self.until(lambda: self.said(Goodbye)))[0]


def settings(
    repo: Path,
    *,
    debounce_s: float = 0,
    verbosity: str = "quiet",
    progress_after_s: float = 0,
    changes: str = "off",
    checks: ChecksSection | None = None,
    **agent: object,
) -> RepoSettings:
    """A repository's settings; most tests want no debounce, no progress message (the others want it at once) and no
    card about changes."""
    config = Config(
        slack=SlackSection(allowed_users=PEOPLE),
        agent=AgentSection(debounce_seconds=debounce_s, **agent),  # type: ignore[arg-type]  # checked by the test
        output=OutputSection(
            verbosity=verbosity,  # type: ignore[arg-type]  # one of three words
            progress_after_seconds=progress_after_s,
            changes=changes,  # type: ignore[arg-type]  # one of three words
        ),
        checks=checks or ChecksSection(),
    )
    return RepoSettings(name="sample", path=str(repo), channel_id=CHANNEL, config=config)


def expiring(settings: RepoSettings, minutes: float) -> RepoSettings:
    """The same where what nobody decides is refused after ``minutes``."""
    config = msgspec.structs.replace(settings.config, approvals=ApprovalsSection(expiry_minutes=minutes))
    return msgspec.structs.replace(settings, config=config)


@contextlib.asynccontextmanager
async def worker(
    settings: RepoSettings,
    *,
    mute: bool = False,
    agents: Callable[[RepoSettings, Clock], Agents] | None = None,
    total: TotalUse | None = None,
) -> AsyncIterator[Parent]:
    """A worker that is Ready; at the end its parent vanishes, as if killed. ``agents``: not the scripted one.
    ``total``: what the other repositories have used."""
    clock = ManualClock()
    backend = ScriptedBackend(clock)
    ours, theirs = socket.socketpair()
    repo = Path(settings.path)
    home = Home(repo / ".codebutler" / "home")
    made = agents or (lambda told, _clock: OneAgent(backend, told))
    serving = asyncio.create_task(serve(theirs, clock, made, home))
    parent = Parent(await MessagePipe.over(ours, to_parent_codec()), clock, backend, mute)
    listening = asyncio.create_task(parent.listen())
    try:
        await parent.until(lambda: parent.said(Hello))
        parent.channel.send(Configure(settings=settings, total=total))
        await parent.until(lambda: parent.said(Ready))
        yield parent
    finally:
        parent.channel.close()
        await parent.channel.wait_closed()
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(serving, listening)

"""How a turn starts and ends in a backend, for every kind of agent, what may cut it off, and what agents are told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import abstractmethod
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct, field

from codebutler.config.schema import RepoSettings, SandboxSection
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError
from codebutler_worker.agents.backend import (
    STOPPED,
    AgentBackend,
    AgentEvent,
    Answer,
    Finished,
    TurnRequest,
    Verdict,
)
from codebutler_worker.agents.session_logs import SessionLog, SessionLogs
from codebutler_worker.egress.policy import NetworkPolicy, for_agents
from codebutler_worker.sandbox.destinations import read_regular
from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.store.opening import STATE_DIR

log = logging.getLogger(__name__)

NetworkPolicyFor = Callable[[SandboxSection, str, Mapping[str, str]], NetworkPolicy]
BUSY = "This agent session is already working on another message: wait for it, or start a new conversation."


class AgentContext(Struct, frozen=True):
    """What every agent works with: the sandbox for its programs, their network access, and where each turn's raw output
    is kept (None = nowhere)."""

    sandbox: Sandbox
    clock: Clock
    network_policy: NetworkPolicy = field(default_factory=NetworkPolicy)
    logs: SessionLogs | None = None

    @classmethod
    def of(
        cls,
        settings: RepoSettings,
        sandbox: Sandbox,
        clock: Clock,
        network_policy: NetworkPolicyFor = for_agents,
    ) -> AgentContext:
        """From the configuration. Raises SandboxUnavailableError."""
        policy = network_policy(settings.config.sandbox, sandbox.name, settings.agent_env)
        return cls(sandbox, clock, policy, SessionLogs.of(settings))


class LiveTurn:
    """A turn while its agent takes input. A backend overrides only what its agent can do."""

    async def answer(self, request_id: str, answer: Answer) -> bool:  # noqa: ARG002 - it never asks
        """Reply to a pending Approval or Question; False if it is no longer pending."""
        return False

    async def steer(self, text: str) -> bool:  # noqa: ARG002 - it reads one prompt
        """Send text into the turn; False if it cannot take it."""
        return False

    async def stop(self) -> bool | None:
        """Ask the turn to end; its stream then ends with Finished(reason="stopped"). False: it was only interrupted."""
        raise NotImplementedError

    async def close(self) -> None:
        """End the turn."""
        await self.stop()


T = TypeVar("T", bound=LiveTurn)
R = TypeVar("R")


class TurnBackend(AgentBackend, Generic[T]):
    """Runs turns; subclasses implement one in ``_work``.

    A session has one owner: if two processes share one, answers get lost silently (Claude Code 2.1.328). The owner
    keeps it until its process is gone, which may be after its turn's answer.
    """

    name = ""

    def __init__(self, clock: Clock, logs: SessionLogs | None = None) -> None:
        self._clock = clock
        self._logs = logs
        self._closed = False
        self._live: dict[str, T | None] = {}  # by turn; None: its program is only starting, or ending
        self._stopped: set[str] = set()  # those of them that should end, even if nothing takes input yet
        self._owned: defaultdict[str, set[str]] = defaultdict(set)  # sessions, by the turn that owns them
        self._endings: dict[asyncio.Task[None], set[str]] = {}  # of processes, by the sessions they work in

    def share_sessions(self, other: TurnBackend[Any]) -> None:
        """The same agent with another model or mode works in the same sessions."""
        self._owned, self._endings = other._owned, other._endings

    @abstractmethod
    def _work(self, turn: TurnRequest, record: SessionLog) -> AsyncGenerator[AgentEvent]:
        """The turn's events. Raises CodeButlerError if the agent is unavailable, CutOffError if the turn was
        stopped."""

    async def start(self, turn: TurnRequest) -> AsyncGenerator[AgentEvent]:
        """Run the turn. Closing the iterator early stops the turn and everything it started."""
        if ending := [task for task, sessions in self._endings.items() if turn.session_id in sessions]:
            await asyncio.wait(ending)
        if any(turn.session_id in sessions for sessions in self._owned.values()):
            yield Finished(ok=False, text=BUSY, reason="failed")
            return
        self._live[turn.turn_id] = None
        if self._closed:
            self._stopped.add(turn.turn_id)
        log, began_s = SessionLog(None, turn.turn_id), self._clock.monotonic()
        try:
            if self._logs is not None:
                log = await asyncio.to_thread(self._logs.open, turn.turn_id, self._clock.now())
            async with aclosing(self._work(turn, log)) as events:
                async for event in events:
                    if isinstance(event, Finished):
                        log.finished = event
                    yield event
        except (CodeButlerError, CutOffError) as error:
            stopped = isinstance(error, CutOffError)
            log.finished = (STOPPED if stopped else Verdict("unavailable", str(error))).finished
            yield log.finished
        finally:
            del self._live[turn.turn_id]
            self._stopped.discard(turn.turn_id)
            if self._logs is not None:
                await asyncio.to_thread(log.close, self._clock.monotonic() - began_s, self._clock.now())

    async def answer(self, turn_id: str, request_id: str, answer: Answer) -> bool:
        """Reply to a pending Approval or Question; False if it is no longer pending."""
        live = self._live.get(turn_id)
        return live is not None and await live.answer(request_id, answer)

    async def steer(self, turn_id: str, text: str) -> bool:
        """Send text into the running turn; False if it cannot take it (any more)."""
        live = self._live.get(turn_id)
        return live is not None and await live.steer(text)

    async def stop(self, turn_id: str) -> bool | None:
        """Ask the turn to end; its stream then ends with Finished(reason="stopped") within 5 s. False: it was only
        interrupted and continues; a second call ends it."""
        if turn_id in self._live:
            self._stopped.add(turn_id)
        live = self._live.get(turn_id)
        return None if live is None else await live.stop()

    async def close(self) -> None:
        """End every process."""
        self._closed = True
        self._stopped.update(self._live)
        await asyncio.gather(*(live.close() for live in self._live.values() if live is not None))
        while self._endings:
            await asyncio.wait(self._endings)

    def _end(self, turn_id: str, ending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``ending``, which ends the turn's process, even if nobody waits for it any more. The last one also ends
        the turn's ownership of its sessions, in ``_owned``."""
        task = asyncio.create_task(ending, name=f"end:{turn_id}")
        self._endings[task] = self._owned[turn_id]
        task.add_done_callback(self._endings.pop)
        return task


class CutOffError(Exception):
    """The turn must end now."""

    def __init__(self, reason: Literal["stopped", "timeout"]) -> None:
        super().__init__(reason)
        self.reason = reason


class Waits(LiveTurn):
    """A turn that works step by step: a stop or, after ``limit_s`` of work, the time limit may cut off each step; time
    spent waiting for people does not count. ``said``: what people send into the turn while it ``listens``."""

    def __init__(self, clock: Clock, limit_s: float | None = None, *, stopped: bool = False) -> None:
        self.stopping = asyncio.Event()
        if stopped:
            self.stopping.set()
        self.said: list[str] = []
        self.listens = False
        self._clock = clock
        self._left_s = limit_s
        self._answers: dict[str, asyncio.Future[Answer]] = {}

    async def work(self, doing: Coroutine[Any, Any, R]) -> R:
        """The result of ``doing``; cancels it and raises CutOffError if the turn is stopped or its time is up."""
        if self._left_s is None:
            return await self._unless(doing, None)
        began_s = self._clock.monotonic()
        alarm = asyncio.create_task(self._clock.sleep(max(0.0, self._left_s)), name="the turn's time limit")
        try:
            return await self._unless(doing, alarm)
        finally:
            alarm.cancel()
            await asyncio.gather(alarm, return_exceptions=True)
            self._left_s -= self._clock.monotonic() - began_s

    def expect(self, request_id: str) -> None:
        """Announce a request that a person will be asked."""
        self._answers[request_id] = asyncio.get_running_loop().create_future()

    async def answered(self, request_id: str) -> Answer:
        """The person's answer. Raises CutOffError if the turn is stopped meanwhile."""
        try:
            return await self._unless(_result(self._answers[request_id]), None)
        finally:
            del self._answers[request_id]

    async def answer(self, request_id: str, answer: Answer) -> bool:
        """Reply to a request; False if nobody waits for it."""
        waiting = self._answers.get(request_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(answer)
        return True

    async def steer(self, text: str) -> bool:
        """Send text into the turn; False if it is over, or has not begun."""
        if not self.listens or self.stopping.is_set():
            return False
        self.said.append(text)
        return True

    async def stop(self) -> None:
        """End the turn at its current step."""
        self.stopping.set()

    async def _unless(self, doing: Coroutine[Any, Any, R], alarm: asyncio.Task[None] | None) -> R:
        if self.stopping.is_set():
            doing.close()
            raise CutOffError("stopped")
        task = asyncio.create_task(doing, name="a step of a turn")
        stop = asyncio.create_task(self.stopping.wait(), name="a stop of a turn")
        waited: set[asyncio.Task[Any]] = {task, stop, *((alarm,) if alarm else ())}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise CutOffError("stopped" if self.stopping.is_set() else "timeout")
        finally:
            task.cancel()
            stop.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)


async def following(events: AsyncIterator[R]) -> R | None:
    """The next event; None at the end."""
    return await anext(events, None)


async def _result(future: asyncio.Future[Answer]) -> Answer:
    return await future


# A checkout's instructions for agents (CLAUDE.md, AGENTS.md), read without trusting the checkout.

INSTRUCTIONS_BYTES = 64 * 2**10


def repository_says(workdir: Path, files: Iterable[str]) -> str:
    """A section for each non-empty one of ``files`` below ``workdir``, as Markdown; long ones are cut.

    Skips files that are not regular or are reached through a symbolic link.
    """
    sections = []
    for name in files:
        with contextlib.suppress(OSError):
            text = read_regular(workdir, name, INSTRUCTIONS_BYTES, head=True).decode(errors="replace").strip()
            sections += [f"# The repository's {name}\n\n{text}"] if text else []
    return "\n\n".join(sections)


# How we tell an agent to mark text that people should read at once. The file may be edited; it describes the marks in
# words, so that an echo of it is not taken for a message.

DEFAULT = """\
[SLACK WRAPPER]
A person gave you this task from a chat thread. What you write is recorded in a log; the person does not see it \
as you work. To tell the person something at once, enclose it in markers. The opening marker is three less-than \
signs, the word SLACK, three greater-than signs. The closing marker is three less-than signs, the word END_SLACK, \
three greater-than signs. A type may follow SLACK, after a colon: progress, question, warning, done or error.
Enclose what the person should know or decide: results, questions, warnings, important steps. Do not enclose file \
contents, diffs, test output or routine steps. The person can read the whole log with !logs.
[END SLACK WRAPPER]"""


def instructions(repo: Path, prompt_file: str) -> str:
    """The text of ``envelope.promptFile``: an absolute path, or one below the repository's ``.codebutler``. Without
    one, or if it cannot be read, the built-in text."""
    if not prompt_file:
        return DEFAULT
    path = Path(prompt_file).expanduser()
    root, relative = (path.parent, path.name) if path.is_absolute() else (repo, f"{STATE_DIR}/{path}")
    try:
        return read_regular(root, relative, INSTRUCTIONS_BYTES).decode(errors="replace").strip() or DEFAULT
    except OSError as error:
        log.warning("envelope.promptFile %s: %s; the built-in text is used", prompt_file, error.strerror)
        return DEFAULT

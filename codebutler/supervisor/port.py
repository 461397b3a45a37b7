"""What the supervision of a worker needs: a link to its process, the parent's services, and what all workers share."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from msgspec import Struct, field

from codebutler.chat.port import Download, Take
from codebutler.config.schema import RepoSettings
from codebutler.domain.clock import Clock
from codebutler.domain.model import Operation, Quoted
from codebutler.domain.refs import MessageRef
from codebutler.observe.chain import AuditAct
from codebutler.protocol.capabilities import HostReport
from codebutler.protocol.conversations import Traced
from codebutler.protocol.messages import (
    Budget,
    Doing,
    Live,
    LogTag,
    Overview,
    ToParent,
    TotalUse,
    TurnEnded,
    TurnStarted,
)
from codebutler.supervisor.lifecycle import Policy, Vitals, WorkerTiming

STARTS_AT_ONCE = 16
News = Budget | Doing | Live | Overview | Traced | TurnStarted
"""What a worker reports as it happens."""


class WorkerLink(Protocol):
    """One worker process and the pipe to it. ``kill`` after its death is harmless."""

    @property
    def pid(self) -> int:
        """The process ID, even after its death."""

    @property
    def unread_bytes(self) -> int:
        """How many bytes sent to the worker it has not read yet."""

    def messages(self, admit: Callable[[int], Awaitable[None]] | None = None) -> AsyncIterator[ToParent]:
        """Messages until end of file. ``admit`` is awaited with the size of each message before it is read.

        Raises ProtocolError, after closing the pipe, for a bad frame.
        """

    def printed(self) -> AsyncIterator[str]:
        """Each line that the worker prints on stdout or stderr, which is always a mistake: it communicates by
        messages."""

    def send(self, message: object) -> None:
        """Queue a message of ``protocol.messages``. Raises FrameTooLargeError."""

    async def drain(self) -> None:
        """Wait until the worker has read enough to queue more."""

    async def wait_dead(self) -> int:
        """The exit code, negative for a signal. Several tasks may await it."""

    def kill(self, signal_number: int) -> None:
        """Send a signal to the worker, and never to another process, however late."""

    def close(self) -> None:
        """Close our end of the pipes."""


Spawn = Callable[[str], Awaitable[WorkerLink]]
"""Starts the worker of the repository of that name; its settings follow over the link. Raises OSError or EOFError."""


class Services(Protocol):
    """What the parent does for its workers. Implementations must not let one worker's call wait for another's."""

    async def send(self, repo: RepoSettings, op_id: str, operation: Operation, *, unsure: bool) -> MessageRef:
        """Do ``operation`` in the repo's channel; returns the message's ref. Raises ChatError."""

    async def fetch(self, repo: RepoSettings, file_id: str, take: Take) -> Download:
        """Pass the content of a file shared in the repo's channel to ``take``, piece by piece; or return the chat's own
        transcript of a voice clip. Raises ChatError."""

    def show(self, repo: RepoSettings, news: News) -> None:
        """Show its activity and state to those who watch: in the chat, on this machine, in App Home, in the status. The
        worker stores none of it, and nothing waits for it."""

    def total(self, repo: RepoSettings) -> TotalUse | None:
        """What the other repositories have used; None if they have no budget together."""

    async def thread(
        self, repo: RepoSettings, thread: MessageRef, before: MessageRef
    ) -> tuple[tuple[Quoted, ...], int]:
        """What was said in a thread of the repo's channel before ``before``, and how many messages are left out
        of it. Raises ChatError."""

    async def turn_ended(self, repo: RepoSettings, ended: TurnEnded) -> None:
        """Report the outcome of these messages to those who wait for it; what must be stored is on disk when this
        returns. May be called again with the same outcome."""

    async def reported(self, repo: RepoSettings, report: HostReport) -> None:
        """A host tells this of its repository; what must be stored is on disk when this returns. Raises
        CodeButlerError."""

    def runs_known(self, repo: RepoSettings) -> str | None:
        """When the latest run ended that its host has reported; "" if none, None if they are not wanted."""

    async def settle(self, seq: int) -> None:
        """The worker has the event on disk, so the journal may drop it. Raises StoreError."""

    async def quarantined(self, repo: RepoSettings, why: str) -> None:
        """Tell the channel, once, that the worker stays down and why."""

    def audit(self, act: AuditAct) -> None:
        """Write an audit line."""

    def log(self, repo: str, tag: LogTag, text: str) -> None:
        """Write a log record under the repo's name."""


class Places:
    """How many workers may run at once: as many as we may open files for. Idle ones make room for others. ``count``
    places, None = no limit. Waiting workers get one in the order of asking.

    ``who`` is any distinct object: a waiting worker (take, withdraw), or a running one (all other methods).
    """

    def __init__(self, count: int | None = None) -> None:
        self._free = count
        self._queue: OrderedDict[object, asyncio.Future[bool]] = OrderedDict()
        self._running: dict[object, tuple[Vitals, Callable[[], None]]] = {}
        self._leaving: set[object] = set()

    @property
    def wanted(self) -> bool:
        """Whether more workers are waiting than are about to leave their places."""
        return len(self._queue) > len(self._leaving)

    @property
    def full(self) -> bool:
        """Whether the next worker must wait."""
        return self._free is not None and self._free <= 0

    async def take(self, who: object) -> bool:
        """Wait for a place; return it with ``give_back``. False after ``withdraw``. Workers that have one are asked to
        make room, the longest idle first."""
        if self._free is None:
            return True
        if self._free > 0:
            self._free -= 1
            return True
        turn = self._queue[who] = asyncio.get_running_loop().create_future()
        for _, nudge in sorted(self._running.values(), key=lambda running: running[0].active_s):
            nudge()
        try:
            return await asyncio.shield(turn)
        except asyncio.CancelledError:
            if turn.done() and turn.result():
                self.give_back(None)
            raise
        finally:
            self._queue.pop(who, None)

    def withdraw(self, who: object) -> None:
        """``who`` stops waiting for a place."""
        if turn := self._queue.pop(who, None):
            turn.set_result(False)

    def give_back(self, who: object) -> None:
        """The process of ``who`` has ended; None if it never had one."""
        self._running.pop(who, None)
        self._leaving.discard(who)
        if self._free is None:
            return
        if self._queue:
            _, turn = self._queue.popitem(last=False)
            turn.set_result(True)
        else:
            self._free += 1

    def entered(self, who: object, vitals: Vitals, nudge: Callable[[], None]) -> None:
        """``who`` runs now; ``vitals`` tell since when it has been idle, and ``nudge`` is called when another worker
        starts to wait."""
        self._running[who] = vitals, nudge

    def leaving(self, who: object) -> None:
        """``who`` is about to make room."""
        self._leaving.add(who)


class Shared(Struct, frozen=True):
    """Shared by all handles; ``rng`` returns numbers in [0, 1). Create it inside a running loop. ``places``: how many
    may run at once; ``slots``: how many of them may be starting."""

    spawn: Spawn
    services: Services
    clock: Clock
    rng: Callable[[], float]
    timing: WorkerTiming = field(default_factory=WorkerTiming)
    policy: Policy = field(default_factory=Policy)
    places: Places = field(default_factory=Places)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(STARTS_AT_ONCE))

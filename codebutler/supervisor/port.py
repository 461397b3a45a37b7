"""What a worker's supervision needs of the world: a link to its process, and the parent's services."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from codebutler.chat.port import Download
from codebutler.config.schema import RepoSettings
from codebutler.model import Operation, Quoted, TurnNote
from codebutler.protocol.messages import Audit, Budget, Live, LogTag, ToParent, TurnEnded, TurnStarted


class WorkerLink(Protocol):
    """One worker process and the pipe to it. ``kill`` after its death is harmless."""

    @property
    def pid(self) -> int:
        """The process ID, also after its death."""

    @property
    def unread_bytes(self) -> int:
        """How much of what it was sent the worker has not taken yet."""

    def messages(self, admit: Callable[[int], Awaitable[None]] | None = None) -> AsyncIterator[ToParent]:
        """Until end of file. ``admit`` is awaited with the size of each message before it is read.

        Raises ProtocolError, after closing the pipe, for a bad frame."""

    def printed(self) -> AsyncIterator[str]:
        """Each line the worker prints on stdout or stderr; it talks by messages, so this is a mishap."""

    def send(self, message: object) -> None:
        """Queue a message of ``protocol.messages``. Raises FrameTooLargeError."""

    async def drain(self) -> None:
        """Wait until the worker has taken enough that more may be queued."""

    async def wait_dead(self) -> int:
        """The exit code, negative for a signal. May be awaited by several."""

    def kill(self, signal_number: int) -> None:
        """Send a signal to the worker, and to nobody else however late it is."""

    def close(self) -> None:
        """Close this end of the pipes."""


class Spawner(Protocol):
    """Starts worker processes. Raises OSError or EOFError when it cannot."""

    async def spawn(self, name: str) -> WorkerLink:
        """Start the worker of the repository ``name``; its settings follow over the link."""


class Services(Protocol):
    """What the parent does on behalf of its workers. Implementations must not let one worker's call wait
    for another's."""

    async def send(self, repo: RepoSettings, op_id: str, operation: Operation, *, unsure: bool) -> str:
        """Do ``operation`` in the repo's channel; returns the message's ts. Raises ChatError."""

    async def fetch(
        self, repo: RepoSettings, file_id: str, take: Callable[[bytes], Awaitable[None]]
    ) -> Download:
        """Give ``take`` the content of a file shared in the repo's channel, piece by piece; or return the
        chat's own transcript of a voice clip. Raises ChatError."""

    def doing(self, repo: RepoSettings, thread_ts: str, text: str) -> None:
        """Show what is done in a thread of the repo's channel."""

    def live(self, repo: RepoSettings, live: Live) -> None:
        """Tell who listens to the repo's channel at this machine what a running turn says and does."""

    async def thread(
        self, repo: RepoSettings, thread_ts: str, before_ts: str
    ) -> tuple[tuple[Quoted, ...], int]:
        """What was said in a thread of the repo's channel before ``before_ts``, and how many messages are left out
        of it. Raises ChatError."""

    def turn_started(self, repo: RepoSettings, started: TurnStarted) -> None:
        """Tell who waits for these messages that they are being worked on."""

    async def turn_ended(self, repo: RepoSettings, ended: TurnEnded) -> None:
        """Tell who waits for these messages what became of them; what has to be kept of it is on disk when this
        returns. The same may come again."""

    def overview(self, repo: RepoSettings, turns: tuple[TurnNote, ...]) -> None:
        """Keep what the repo's newest turns are, for App Home."""

    def budget(self, repo: RepoSettings, budget: Budget) -> None:
        """Keep how much of the repo's daily limits is used, for status and App Home."""

    async def settle(self, seq: int) -> None:
        """The worker has the event on disk: the journal may forget it. Raises StoreError."""

    async def quarantined(self, repo: RepoSettings, why: str) -> None:
        """Tell the channel, once, that the worker stays down and why."""

    def audit(self, repo: RepoSettings, record: Audit) -> None:
        """Write an audit line."""

    def log(self, repo: str, tag: LogTag, text: str) -> None:
        """Write a log record under the repo's name."""

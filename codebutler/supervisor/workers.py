"""The port to all workers, the supervisor's own or those of other machines; and the rows that describe these
machines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from codebutler.config.schema import RepoSettings
from codebutler.domain.refs import PersonRef
from codebutler.intake.records import Entry
from codebutler.protocol.conversations import Question
from codebutler.protocol.messages import StopReason
from codebutler.supervisor.queues import T
from codebutler.supervisor.supervisor import RESTART_GRACE_S, RepoRow


class HostRow(Struct, frozen=True, kw_only=True):
    """A host. ``seen``: when it was last heard from, None if never since this gateway began to lead; ``since``: when
    its absence began, None while it is awake. ``pending``: events that it has not taken, None if unknown; ``outbox``:
    operations that its workers have not seen completed, by its last report. ``has``: the names of all repositories
    registered there; None if it does not say."""

    name: str
    awake: bool
    repos: tuple[str, ...]
    since: datetime | None = None
    seen: datetime | None = None
    version: str = ""
    pending: int | None = None
    outbox: int = 0
    has: tuple[str, ...] | None = None


class GatewayRow(Struct, frozen=True, kw_only=True):
    """A gateway: the one that leads, or one that stands by."""

    machine: str
    version: str
    leads: bool
    seen: datetime


class ClusterRow(Struct, frozen=True, kw_only=True):
    """A cluster as `codebutler cluster status --json` shows it; ``epoch`` is the leader's."""

    epoch: int
    gateways: tuple[GatewayRow, ...]
    hosts: tuple[HostRow, ...]


class Mover(Struct, frozen=True):
    """The steps that move a repository (the first argument) to another host. ``hold`` keeps new events until
    ``release``; clicks and `!stop` still reach the old host, unless the second argument names it: then only its last
    reports are accepted. ``ended`` returns once nothing is unfinished on the old host, ``sent`` once nothing is on its
    way there. ``taken_over``, once the new host is registered, gives it the events that the old one (the second
    argument) had not taken; returns how many requests are lost because they may have been carried out. All raise
    CodeButlerError."""

    hold: Callable[[str, str], None]
    release: Callable[[str], None]
    ended: Callable[[str], Awaitable[None]]
    sent: Callable[[str], Awaitable[None]]
    taken_over: Callable[[str, str], Awaitable[int]]


class Workers(Protocol):
    """What the parent asks of its workers; ``Services`` is what they ask of the parent."""

    def add(self, repo: RepoSettings) -> None:
        """Serve ``repo`` from now on. Raises RegistryError if its name or its channel is taken."""

    async def remove(self, name: str, grace_s: float) -> None:
        """Let the worker finish and stop serving the repository. Raises RegistryError."""

    def reconfigure(self, repo: RepoSettings, grace_s: float = RESTART_GRACE_S) -> None:
        """Apply other settings to the repository of that name. Raises RegistryError."""

    def start(self) -> None:
        """Start the workers of all repositories."""

    async def wait_started(self) -> None:
        """Wait until every worker has become ready or failed once."""

    @property
    def is_starting(self) -> bool:
        """Whether a worker has neither become ready nor failed yet."""

    def deliver(self, entry: Entry) -> None:
        """Take an event for its channel's worker. It is settled (``Services.settle``) once the journal may drop it."""

    def stop_turns(self, name: str, user: PersonRef) -> None:
        """End all turns of the repository; ``user`` is named as the person who did. Raises RegistryError."""

    def look_at_pulls(self, name: str, numbers: tuple[int, ...]) -> None:
        """There is news of these pull requests of the repository, none = of any."""

    def tell_total(self) -> None:
        """Tell the running workers what the other repositories use."""

    def wake(self, name: str) -> None:
        """Start the repository's worker now if it does not run, and forget earlier deaths. Raises RegistryError."""

    def restart(self, name: str) -> None:
        """End the repository's worker, which may finish what runs, and start it again. Raises RegistryError."""

    async def ask(self, name: str, question: Question, kind: type[T]) -> T:
        """What the repository's worker answers. Raises CodeButlerError if it does not, RegistryError."""

    def down(self, name: str) -> str:
        """Why the repository's worker stays down; "" while it runs, sleeps or is about to, and for an unknown name."""

    def rows(self) -> tuple[RepoRow, ...]:
        """Every repository, in the order they were added; without memory figures."""

    async def status(self) -> tuple[RepoRow, ...]:
        """Every repository, with each worker's memory and programs if they can be determined."""

    async def cluster(self) -> ClusterRow | None:
        """The machines that the repositories are on; None if that is this one."""

    @property
    def mover(self) -> Mover | None:
        """What moves a repository to another machine; None if there is only one."""

    @property
    def outbox_pending(self) -> int:
        """How many operations the workers have not seen completed, by their last report."""

    async def shutdown(self, grace_s: float, reason: StopReason = "shutdown") -> None:
        """End all workers: each finishes within ``grace_s`` seconds or is killed (0: now)."""

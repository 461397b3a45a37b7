"""Notices about a host that is away: ⏳ on each waiting message and a line in its thread; both are settled when it is
back.

Each notice is noted before it is posted, so that the gateway that leads when the host is back can settle it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from msgspec import Struct
from msgspec.structs import replace

from codebutler.cluster.buckets import BusError
from codebutler.cluster.leases import HostLeases
from codebutler.config.registry import host_in
from codebutler.config.schema import RepoSettings
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, StoreError
from codebutler.domain.message import said
from codebutler.domain.model import (
    ButtonClicked,
    Event,
    MessagePosted,
    Operation,
    Post,
    React,
    SlashCommand,
    Update,
)
from codebutler.domain.refs import NOWHERE, MessageRef
from codebutler.intake.intake import dated
from codebutler.intake.records import Kept, Notes
from codebutler.platform.tasks import Tasks
from codebutler.supervisor.port import Services
from codebutler.text.markup import plain

POLL_S = 1.0
PATIENCE_S = 5.0
"""A shorter silence is not announced: the host may only be restarting."""
TAKEN_S = 4.0
"""An event that was sent this long before its host was last heard from has normally been taken."""
MAX_MARKS = 200
"""The limit for each repository: chats allow few reactions a minute."""
_OPERATIONS = UUID("0f5d7c51-6a3c-5c77-9b1e-2d8a4c1be05a")

log = logging.getLogger("codebutler.cluster")


class HostAbsence(Struct, frozen=True, kw_only=True):
    """The notices about one absence of a repository's host, which began ``since`` (None: no absence). ``lines``: the
    message with our notice by its thread (key NOWHERE: the channel itself); the value is NOWHERE while the notice may
    not be posted yet. ``marked``: the messages with our mark."""

    host: str = ""
    since: datetime | None = None
    lines: dict[MessageRef, MessageRef] = {}
    marked: tuple[MessageRef, ...] = ()

    @property
    def started_text(self) -> str:
        """When it began, for people."""
        return f"{self.since:%Y-%m-%d %H:%M} UTC" if self.since else ""


class AbsenceNotices:
    """``on_sent`` and ``on_heartbeat`` report what happens, ``run`` posts notices about it. ``untaken`` finds how many
    events of each repository a host has not taken; raises BusError."""

    def __init__(
        self,
        hosts: HostLeases,
        untaken: Callable[[str], Awaitable[Mapping[str, int]]],
        notes: Notes,
        services: Services,
        clock: Clock,
    ) -> None:
        self._hosts = hosts
        self._untaken = untaken
        self._notes = notes
        self._services = services
        self._clock = clock
        self._sent: defaultdict[str, list[tuple[float, RepoSettings, Event]]] = defaultdict(list)
        self._notices: dict[str, Kept[HostAbsence]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._settled_repos: set[str] = set()
        """Repositories without notices, or whose notices are being settled."""
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))

    def on_sent(self, repo: RepoSettings, event: Event) -> None:
        """The event is on its way to the repository's host."""
        self._sent[host_in(repo.path)].append((self._clock.boottime(), repo, event))

    async def reclassify(self, repo: RepoSettings, event: Event) -> Event:
        """The event as it should be sent. A message from the chat's history with our ⏳, or our line in its thread, has
        only waited for its host: nobody has worked on it."""
        if not isinstance(event, MessagePosted) or event.handled != "maybe":
            return event
        try:
            absence = await self._notices_of(repo).open()
        except StoreError:
            return event
        if event.ref not in absence.marked and event.root not in absence.lines:
            return event
        now = self._clock.now()
        return dated(replace(event, handled="no"), now, now, repo.config.catch_up.max_age_hours)

    def on_heartbeat(self, host: str, repos: Iterable[RepoSettings]) -> None:
        """The host has reported, and serves ``repos``."""
        now_s = self._clock.boottime()
        if (sent := self._sent.pop(host, None)) and (
            late := [each for each in sent if now_s - each[0] < TAKEN_S]
        ):
            self._sent[host] = late
        for repo in repos:
            if repo.name not in self._settled_repos:
                self._settled_repos.add(repo.name)
                self._tasks.start(self._settle(repo), name=f"end of an absence of {host}")

    async def run(self) -> None:
        """Look for absent hosts regularly, until cancelled."""
        try:
            while True:
                for host in list(self._sent):
                    if self._hosts.is_away(host) and self._hosts.silent_s(host) >= PATIENCE_S:
                        await self._announce_absence(host)
                await self._clock.sleep(POLL_S)
        finally:
            await self._tasks.close(0)

    async def _announce_absence(self, host: str) -> None:
        """Post notices for the events that the host has not taken. They are the latest ones sent, since the stream
        keeps their order."""
        sent = self._sent.pop(host)
        try:
            untaken = dict(await self._untaken(host))
        except BusError:
            self._sent[host] = [*sent, *self._sent[host]]
            return
        since = self._clock.now() - timedelta(seconds=self._hosts.silent_s(host))
        waiting = []
        for _, repo, event in reversed(sent):
            if untaken.get(repo.name, 0) > 0:
                untaken[repo.name] -= 1
                waiting.append((repo, event))
        for repo, event in reversed(waiting):
            self._tasks.start(self._announce(repo, event, since), name=f"absence of {host}")

    async def _announce(self, repo: RepoSettings, event: Event, since: datetime) -> None:
        """Mark each message once, and post once in each thread; one at a time in each repository."""
        if (thread := _notice_thread(event)) is None:
            return
        async with self._locks[repo.name]:
            self._settled_repos.discard(repo.name)
            notices, ref = self._notices_of(repo), event.ref if isinstance(event, MessagePosted) else NOWHERE
            try:
                before = await notices.open()
                await notices.change(
                    lambda absence: _with_notice(absence, host_in(repo.path), since, thread, ref)
                )
            except StoreError as error:
                log.warning("could not post that %s is waiting for its host: %s", repo.name, error)
                return
            if ref in notices.value.marked and ref not in before.marked:
                await self._send(
                    repo, f"{notices.value.started_text} {ref}", React(target=ref, mark="queued")
                )
            if thread not in before.lines:
                await self._post(repo, notices, thread, unsure=False)

    async def _post(
        self, repo: RepoSettings, notices: Kept[HostAbsence], thread: MessageRef, *, unsure: bool
    ) -> MessageRef:
        absence = notices.value
        host = plain(absence.host)
        text = f"⏳ Its host {host} has been away since {absence.started_text}. This message waits until it is back."
        line = Post(message=said(text), thread=thread or None)
        ref = await self._send(repo, f"{absence.started_text} line {thread}", line, unsure=unsure)
        if ref:
            await notices.change(lambda absence: replace(absence, lines={**absence.lines, thread: ref}))
        return ref

    async def _settle(self, repo: RepoSettings) -> None:
        """The host is back: remove the marks, and say in each line how long it was away."""
        async with self._locks[repo.name]:
            try:
                notices = self._notices_of(repo)
                absence = await notices.open()
                until = f"{self._clock.now():%Y-%m-%d %H:%M} UTC"
                text = f"Its host {plain(absence.host)} was away from {absence.started_text} until {until}."
                for ref in absence.marked:
                    mark = React(target=ref, mark="queued", remove=True)
                    await self._send(repo, f"{absence.started_text} {ref} off", mark)
                for thread, posted in absence.lines.items():
                    line = posted or await self._post(repo, notices, thread, unsure=True)
                    await self._send(
                        repo, f"{absence.started_text} end {thread}", Update(target=line, message=said(text))
                    )
                await notices.change(lambda _: HostAbsence())
            except StoreError as error:
                log.warning("the end of an absence will be announced later: %s", error)
                self._settled_repos.discard(repo.name)

    async def _send(
        self, repo: RepoSettings, key: str, operation: Operation, *, unsure: bool = False
    ) -> MessageRef:
        """Returns the message's ref; NOWHERE if the chat refuses the operation: the message may be gone."""
        op_id = uuid5(_OPERATIONS, f"{repo.channel_id} {key}").hex
        try:
            return await self._services.send(repo, op_id, operation, unsure=unsure)
        except ChatError as error:
            log.info("could not post in %s that its host is away: %s", repo.name, error)
            return NOWHERE

    def _notices_of(self, repo: RepoSettings) -> Kept[HostAbsence]:
        return self._notices.setdefault(
            repo.name, Kept(self._notes, f"absence of {repo.name}", HostAbsence())
        )


def _notice_thread(event: Event) -> MessageRef | None:
    """The thread for the notice, NOWHERE for the channel itself; None if nobody waits for an answer."""
    match event:
        case MessagePosted(root=root):
            return root
        case ButtonClicked(thread=thread, message=message):
            return thread or message
        case SlashCommand():
            return NOWHERE
    return None


def _with_notice(
    absence: HostAbsence, host: str, since: datetime, thread: MessageRef, ref: MessageRef
) -> HostAbsence:
    if absence.since is None:
        absence = HostAbsence(host=host, since=since)
    marked = absence.marked
    if ref and ref not in marked and len(marked) < MAX_MARKS:
        marked = (*marked, ref)
    return replace(absence, lines={thread: NOWHERE, **absence.lines}, marked=marked)

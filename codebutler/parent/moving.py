"""``!move``: a repository goes to another host of the cluster.

The request is noted first, so that the next gateway can resume it. Then new events are held, the worker on the old host
ends, the note names the new host, and events that the old host had not taken go there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.permission import Where, admitted, may
from codebutler.config.registry import Registry
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, CodeButlerError, StoreError
from codebutler.domain.message import said
from codebutler.domain.model import Post
from codebutler.intake.records import Kept, Notes
from codebutler.intake.repos import RepoTable, Served
from codebutler.observe.chain import AuditAct
from codebutler.parent.parts import Reloads, RepoHosts, place_of, placed
from codebutler.platform.kill_points import reached
from codebutler.platform.tasks import cancel
from codebutler.schedule.commands import Asker
from codebutler.schedule.scheduler import Publish
from codebutler.supervisor.workers import ClusterRow, HostRow, Mover, Workers
from codebutler.text.markup import code
from codebutler.text.wording import load

RETRY_S = 5.0
STAYS = (
    "Sessions, the history of runs and uncommitted work stay on {old}: a thread that began there starts a new session "
    "with its next message. `!move {old}` goes back to them."
)
ONE_MACHINE = "Everything is on this machine: only a cluster has other hosts to move to."

log = logging.getLogger("codebutler.parent")


class MoveMeans(Struct, frozen=True, kw_only=True):
    """What moves need. ``notes``: shared by all gateways."""

    registry: Registry
    notes: Notes
    table: Callable[[], RepoTable]
    workers: Workers
    reloads: Reloads
    publish: Publish
    audit: Callable[[AuditAct], None]
    clock: Clock


class RepoMoves:
    """Moves repositories between hosts. Call ``resume`` once, before any event is delivered; ``answer`` handles
    `!move`."""

    def __init__(self, means: MoveMeans) -> None:
        self._means = means
        self._kept: dict[str, Kept[RepoHosts]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._deciding = asyncio.Lock()
        """Held while a move becomes final: from then on it cannot be cancelled."""

    async def resume(self) -> None:
        """Resume the moves that an earlier gateway began. Raises StoreError."""
        if (mover := self._means.workers.mover) is None:
            return
        for served in self._means.table().served:
            place = await self._place(served.entry.name).open()
            if place.is_moving:
                mover.hold(served.entry.name, place.left)
                self._begin(mover, served.entry.name)

    async def registered(self) -> None:
        """If somebody has changed a repository's host in the registry by hand, note that one. Raises StoreError."""
        if self._means.workers.mover is None:
            return
        for served in self._means.table().served:
            kept, host = self._place(served.entry.name), served.entry.host
            place = await kept.open()
            if place.host not in ("", host) and not place.is_moving:
                await kept.change(partial(_corrected, host=host))

    async def close(self) -> None:
        """Stop here; the next gateway resumes unfinished moves."""
        await cancel(set(self._running.values()))

    async def answer(self, argument: str, asker: Asker) -> str:
        """List the hosts, or begin to move the repository of the channel. Raises StoreError."""
        cluster, mover = await self._means.workers.cluster(), self._means.workers.mover
        served = self._means.table().named(asker.repo)
        if cluster is None or mover is None or served is None:
            return ONE_MACHINE
        where = Where(served.config, served.channel_id, ("move",))
        if not (decision := may(admitted(asker.user), "move", where)).allowed:
            return decision.message
        host, _, force = argument.strip().partition(" ")
        async with self._one_at_a_time:
            if not host:
                return _listing(served, cluster, await self._place(asker.repo).open())
            return await self._move(served, cluster, mover, wish_of(host, asker, force=bool(force)))

    async def _move(self, served: Served, cluster: ClusterRow, mover: Mover, wanted: RepoHosts) -> str:
        name, old, new = served.entry.name, served.entry.host, wanted.to
        kept = self._place(name)
        place = await kept.open()
        if place.left:
            return f"{code(name)} is just leaving {place.left}: try again in a moment."
        if place.to and new == old:
            return await self._stay(kept, mover, name, old)
        is_same = place.to == new and (place.key == wanted.key or (wanted.force and not place.force))
        if place.to and not is_same:
            return f"{code(name)} is already being moved to {place.to}: `!move {old}` keeps it on {old}."
        if not place.to:
            down = "" if wanted.force else self._means.workers.down(name)
            if why := _objection(name, old, new, cluster):
                return why
            if down:
                return (
                    f"The unfinished work there cannot end: {down}. `!move {new} force` does not wait for it."
                )
        await self._end(name)
        mover.hold(name, "")
        try:
            await kept.change(lambda at: replace(wanted, host=at.host, before=at.before))
        except StoreError:
            if not place.to:
                mover.release(name)
            raise
        reached("move.noted")
        self._begin(mover, name)
        how = "without waiting for running work" if wanted.force else "once nothing is running or waiting"
        return f"Moving {code(name)} from {old} to {new}, {how} on {old}. The channel gets a message when it is done."

    async def _stay(self, kept: Kept[RepoHosts], mover: Mover, name: str, old: str) -> str:
        await self._end(name)
        if kept.value.left:
            self._begin(mover, name)
            return f"Too late: {code(name)} is just leaving {old}. Try again in a moment."
        await kept.change(lambda at: replace(at, to="", force=False))
        mover.release(name)
        return f"{code(name)} stays on {old}."

    def _place(self, name: str) -> Kept[RepoHosts]:
        return self._kept.setdefault(name, place_of(self._means.notes, name))

    # The move itself

    def _begin(self, mover: Mover, name: str) -> None:
        self._running[name] = asyncio.create_task(self._run(mover, name), name=f"move of {name}")

    async def _end(self, name: str) -> None:
        async with self._deciding:
            if (task := self._running.pop(name, None)) is not None:
                await cancel({task})

    async def _run(self, mover: Mover, name: str) -> None:
        while True:
            try:
                await self._steps(mover, name)
            except CodeButlerError as error:
                log.warning("[%s] its move is waiting: %s", name, error)
                await self._means.clock.sleep(RETRY_S)
            else:
                return

    async def _steps(self, mover: Mover, name: str) -> None:
        """The steps of a move; each may be repeated. Raises CodeButlerError."""
        kept, served = self._place(name), self._means.table().named(name)
        if served is None:
            await kept.change(lambda _: RepoHosts())
            return
        if kept.value.to:
            old = served.entry.host
            if not kept.value.force:
                await self._tell_of_runs(name, served, kept.value)
                await mover.ended(name)
            mover.hold(name, old)
            await mover.sent(name)
            async with self._deciding:
                await kept.change(lambda at: at.moved(old))
            reached("move.decided")
        place = kept.value
        await asyncio.to_thread(self._means.registry.update, partial(placed, name=name, host=place.host))
        reached("move.registered")
        await self._means.reloads.ask()
        lost = await mover.taken_over(name, place.left)
        reached("move.taken")
        await self._tell_done(name, served, place, lost)
        await kept.change(lambda at: replace(at, left="", force=False))
        mover.release(name)

    async def _tell_of_runs(self, name: str, served: Served, place: RepoHosts) -> None:
        """Post a line about the running agents in the channel, for the other people there."""
        row = next((each for each in self._means.workers.rows() if each.name == name), None)
        if row is None:
            return
        old, turns = served.entry.host, row.turns
        if not any((turns.running, turns.queued, turns.waiting, row.worker.undelivered)):
            return
        text = (
            f"{code(name)} moves from {old} to {place.to} once nothing is unfinished on {old}: "
            f"{load(turns.running, turns.waiting, turns.queued, turns.parked)}. New messages wait for {place.to}; "
            f"buttons and `!stop` still reach {old}. `!move {old}` keeps it there, `!move {place.to} force` does not "
            "wait."
        )
        await self._post(served, f"{place.key} begins", text)

    async def _tell_done(self, name: str, served: Served, place: RepoHosts, lost: int) -> None:
        texts = [f"{code(name)} is now served by {place.host}.", STAYS.format(old=place.left)]
        if place.force:
            texts.append(f"Work that {place.left} had accepted and not finished stays there, too.")
        if lost:
            what = "One click or slash command" if lost == 1 else f"{lost} clicks or slash commands"
            texts.append(f"{what} may have been handled there: repeat those that had no effect.")
        await self._post(served, f"{place.key} done", " ".join(texts))
        text = f"{place.left} to {place.host}{' (force)' if place.force else ''}"
        act = AuditAct(
            kind="moved",
            user=place.user,
            channel=served.channel_id,
            text=f"{name}: {text}",
            decision="allowed",
        )
        try:
            await asyncio.to_thread(self._means.audit, act)
        except OSError as error:
            log.error("the audit log cannot be written: %s", error)  # noqa: TRY400 - a line is enough

    async def _post(self, served: Served, key: str, text: str) -> None:
        """Post it once, whichever gateway does it."""
        try:
            await self._means.publish(served.channel_id, f"move {key}", Post(message=said(text)), True)  # noqa: FBT003 - unsure
        except ChatError as error:
            log.warning("[%s] could not post about its move: %s", served.entry.name, error)


def _corrected(place: RepoHosts, host: str) -> RepoHosts:
    return RepoHosts(host=host, before=tuple(each for each in (*place.before, place.host) if each != host))


def wish_of(host: str, asker: Asker, *, force: bool) -> RepoHosts:
    """The move that somebody requests."""
    return RepoHosts(to=host.lower(), force=force, key=asker.key, user=asker.user)


def _objection(name: str, old: str, new: str, cluster: ClusterRow) -> str:
    """Why it cannot be moved there; "" if it can."""
    row = next((each for each in cluster.hosts if each.name == new), None)
    if new == old:
        return f"{code(name)} is already on {old}."
    if row is None:
        known = ", ".join(each.name for each in cluster.hosts)
        return f"Unknown host {new}. Known hosts: {known}."
    if row.since is not None:
        return (
            f"{new} has been away since {row.since:%Y-%m-%d %H:%M} UTC: start `codebutler host` there first."
        )
    if row.has is None:
        return f"{new} does not report which repositories it has: update CodeButler there."
    if name not in row.has:
        return (
            f"{new} has no repository named {code(name)}: run `codebutler add-repo PATH --name {name}` there."
        )
    return ""


def _listing(served: Served, cluster: ClusterRow, place: RepoHosts) -> str:
    name, now = served.entry.name, served.entry.host
    moving = f", and moves to {place.to}" if place.to else ""
    lines = [f"• {each.name}: {_state(each, name, now)}" for each in cluster.hosts]
    return "\n".join([f"{code(name)} is on {now}{moving}. `!move HOST` moves it.", *lines])


def _state(row: HostRow, name: str, now: str) -> str:
    away = f"; away since {row.since:%Y-%m-%d %H:%M} UTC" if row.since else ""
    if row.name == now:
        return f"has it now{away}"
    if row.has is None:
        return f"does not report what it has{away}"
    return ("also has it" if name in row.has else "does not have it") + away

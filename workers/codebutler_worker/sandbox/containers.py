"""The containers of one worker: made on demand, one for each conversation, and gone with it, with the worker, or
with whatever a program left running in it.

`docker exec` outlives its client, so a container takes one program at a time: when that one has ended and something
still runs, the container is killed and the next program gets a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from codebutler.config.programs import RUNNER
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.cgroups import (
    AGAIN_S,
    CONTROLLERS,
    EVENTS,
    count,
    group_name,
    members,
    own_slots,
    ownerless,
)
from codebutler_worker.sandbox.docker_argv import IDLE
from codebutler_worker.sandbox.docker_client import Docker, PendingRemovals, end_first_process, let_go
from codebutler_worker.sandbox.mounts import OUTDATED, Wanted, mismatch, question

GONE_S = 0.5
IDLE_CONTAINERS = 8
"""How many wait for the next turn of their conversation; beyond it, the longest idle goes."""
OWNER = "codebutler.owner"
CONVERSATION = "codebutler.conversation"
EXCHANGED = "something was exchanged while it was made, so nothing was started; ask again"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a container is made for, and with which options of `docker run`; ``reusable``: for several programs.

    ``mounts`` is what has to show in it: where something else lies there now, it is another recipe.
    """

    conversation: str
    options: tuple[str, ...]
    mounts: tuple[Wanted, ...] = ()
    reusable: bool = True


@dataclass(slots=True)
class Container:
    """A running container, as long as ``line`` holds it: a client of docker's, which ends with us. ``pid`` is its first
    process; ``groups`` are its control groups, if we see them."""

    name: str
    recipe: Recipe
    line: Process
    pid: int
    groups: dict[str, Path] = field(default_factory=dict)
    unwanted: bool = False

    def struck(self) -> dict[str, int]:
        """How often something in it ran into its limits so far, by limit."""
        return {
            name: count(self.groups[controller], files, key)
            for name, files, key in EVENTS
            if (controller := _controller(name)) in self.groups
        }

    @property
    def alone(self) -> bool | None:
        """Whether nothing but its first process is left; None if that cannot be told from here."""
        if "pids" not in self.groups:
            return None
        found = members(self.groups["pids"])
        return found == [self.pid]

    @property
    def lives(self) -> bool | None:
        """Whether it still runs; None if that cannot be told from here."""
        return None if "pids" not in self.groups else self.pid in members(self.groups["pids"])

    def end(self) -> bool:
        """End everything in it without the daemon; whether it has ended or is about to."""
        return self.lives is False or end_first_process(self.pid, self.groups.get("pids"))


def _controller(limit: str) -> str:
    return {"memory": "memory", "processes": "pids"}[limit]


class Containers:
    """Every container of this worker."""

    def __init__(self, docker: Docker, idle_s: float) -> None:
        self._docker = docker
        self._idle_s = idle_s
        self._pending = PendingRemovals(self._remove)
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._owner = group_name()
        self._idle: list[Container] = []
        self._busy: list[Container] = []

    async def enter(self, recipe: Recipe) -> Container:
        """A container for one program: one that waits, or a new one. Raises SandboxUnavailableError."""
        while found := next((one for one in self._idle if one.recipe == recipe), None):
            self._idle.remove(found)
            self._leaving.pop(found.name).cancel()
            self._busy.append(found)
            # What is mounted on a name goes with it, and who takes its place may get its inode, too.
            if not await self._mistaken(found.name, recipe):
                return found
            self._busy.remove(found)
            await self._end([found])
        # The same conversation with other walls: what was made for the old ones is of no use any more.
        await self._discard([one for one in self._idle if recipe.conversation and _same(one, recipe)])
        made = await self._make(recipe)
        self._busy.append(made)
        return made

    async def kill(self, container: Container) -> None:
        """End everything in it, whatever its clients do."""
        container.unwanted = True
        await self._end([container])

    async def leave(self, container: Container) -> None:
        """The program has ended, or its client has: kill what is left of it."""
        self._busy.remove(container)
        if container.unwanted or not container.recipe.reusable or not await self._alone(container):
            await self._discard([container])
            return
        self._idle.append(container)
        self._leaving[container.name] = asyncio.create_task(
            self._expire(container), name=f"idle:{container.name}"
        )
        await self._discard(self._idle[:-IDLE_CONTAINERS])

    async def release(self, conversation: str) -> None:
        """The conversation is over: its containers go, one in which something runs as soon as that has ended."""
        for container in self._busy:
            container.unwanted |= container.recipe.conversation == conversation
        await self._discard([one for one in self._idle if one.recipe.conversation == conversation])

    async def sweep(self) -> int:
        """Remove the containers of workers that are no more; how many there were."""
        listing = await self._docker.run(
            "ps", "-a", "--filter", f"label={OWNER}", "--format", f'{{{{.Names}}}} {{{{.Label "{OWNER}"}}}}'
        )
        rows = [line.split() for line in listing.splitlines()]
        left = [row[0] for row in rows if len(row) == 2 and ownerless(row[1])]
        if left:
            await self._docker.run("rm", "-f", *left)
        return len(left)

    async def close(self) -> None:
        """Remove every container."""
        await self._discard([*self._idle, *self._busy])
        await self._pending.close()

    async def _expire(self, container: Container) -> None:
        await asyncio.sleep(self._idle_s)
        del self._leaving[container.name]
        await self._discard([container])

    async def _make(self, recipe: Recipe) -> Container:
        name = group_name()
        making = asyncio.create_task(self._run(name, recipe), name=f"container:{name}")
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            # A half-made container would be nobody's.
            with contextlib.suppress(SandboxUnavailableError):
                await self._discard([await making])
            raise

    async def _run(self, name: str, recipe: Recipe) -> Container:
        labels = (f"--label={OWNER}={self._owner}", f"--label={CONVERSATION}={recipe.conversation}")
        options = ("--interactive", "--rm", "--pull=never", f"--name={name}", *labels)
        line = await self._docker.hold("run", *options, *recipe.options, RUNNER, *IDLE)
        try:
            if wrong := await self._mistaken(name, recipe):
                raise SandboxUnavailableError(wrong if wrong == OUTDATED else f"{wrong}: {EXCHANGED}")
            asked = ("inspect", "--format", "{{.State.Pid}} {{.Id}}", name)
            pid, full_id = (await self._docker.run(*asked)).split()
        except BaseException:
            with contextlib.suppress(SandboxUnavailableError):
                await self._docker.run("kill", name)
            await let_go(line)
            raise
        return Container(name, recipe, line, int(pid), await asyncio.to_thread(groups_of, int(pid), full_id))

    async def _mistaken(self, name: str, recipe: Recipe) -> str:
        """One line, if it is not as it was to be made; "" if it is. Nobody is in it."""
        asked = ("exec", "--workdir", "/", name, *question(recipe.mounts))
        try:
            return mismatch(recipe.mounts, await self._docker.run(*asked))
        except SandboxUnavailableError as error:
            return f"its mounts cannot be checked ({error})"

    async def _alone(self, container: Container) -> bool:
        if container.alone is not None:
            # The client hears of the end before the last process is gone.
            for _ in range(int(GONE_S / AGAIN_S)):
                if container.alone:
                    return True
                await asyncio.sleep(AGAIN_S)
            return False
        with contextlib.suppress(SandboxUnavailableError):
            return len((await self._docker.run("top", container.name, "-eo", "pid")).splitlines()) == 2
        return False

    async def _discard(self, containers: list[Container]) -> None:
        for container in containers:
            if container in self._idle:
                self._idle.remove(container)
            if leaving := self._leaving.pop(container.name, None):
                leaving.cancel()
        if containers:
            await self._end(containers)

    async def _end(self, containers: list[Container]) -> None:
        """Docker removes them then, in its own time. One that is gone already is no failure."""
        try:
            await self._docker.run("kill", *(container.name for container in containers))
        except SandboxUnavailableError:
            for container in containers:
                if not container.end():
                    self._pending.add(container.name)
        for container in containers:
            await let_go(container.line)

    async def _remove(self, names: Collection[str]) -> None:
        """Those of them that are still there. Raises SandboxUnavailableError."""
        label = f"label={OWNER}={self._owner}"
        listed = await self._docker.run("ps", "-a", "--filter", label, "--format", "{{.Names}}")
        if left := [name for name in listed.split() if name in names]:
            await self._docker.run("rm", "-f", *left)


def _same(container: Container, recipe: Recipe) -> bool:
    return container.recipe.conversation == recipe.conversation


def groups_of(pid: int, container_id: str) -> dict[str, Path]:
    """The control groups by controller of a container's first process; empty if they are not ours to see (then
    ``pid`` means another process here, or none)."""
    try:
        membership = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
        slots = own_slots(membership, Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    found: dict[str, Path] = {}
    for slot in slots if container_id in membership else ():
        if pid in members(slot.directory):
            for name in slot.controllers if slot.version == 1 else CONTROLLERS:
                found.setdefault(name, slot.directory)
    return found

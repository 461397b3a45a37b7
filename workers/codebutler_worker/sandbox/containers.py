"""The containers of one worker: created on demand, one per conversation, and removed with the conversation, with the
worker, or when a program leaves processes running.

A `docker exec` outlives its client, so a container runs one program at a time: if processes remain when it ends, the
container is killed and the next program gets a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

from msgspec import Struct, field

from codebutler.config.programs import RUNNER
from codebutler.domain.errors import SandboxUnavailableError
from codebutler.platform.system import this_system
from codebutler_worker.sandbox.cgroups import CONTROLLERS, ResourceLimits, members, own_slots
from codebutler_worker.sandbox.docker_argv import IDLE, OUTDATED, PLACE, ExpectedMount, mismatch, question
from codebutler_worker.sandbox.limits import AGAIN_S, EVENTS, count, explain
from codebutler_worker.sandbox.port import owned_name, ownerless

CLIENT_S = 60.0
MISSING = f"the image {RUNNER} is missing: run `codebutler sandbox build`"

GONE_S = 0.5
DAEMON_AGAIN_S = 5.0
IDLE_CONTAINERS = 8
"""How many containers wait for the next turn of their conversation; beyond that, the one idle longest is removed."""
OWNER = "codebutler.owner"
CONVERSATION = "codebutler.conversation"
EXCHANGED = (
    "a path was replaced while the container was created, so nothing was started: send the message again"
)


class Docker(Struct, frozen=True):
    """The docker client, as arguments: ``host`` is the daemon's address. The user's docker configuration is not
    read."""

    program: Path
    host: str

    @property
    def argv(self) -> tuple[str, ...]:
        """The arguments that every call of the client starts with."""
        return (str(self.program), "--config", "/var/empty/codebutler", "--host", self.host)

    async def run(self, *words: str, env: dict[str, str] | None = None) -> str:
        """The output of a client command. ``env`` is the client's own environment.

        Raises SandboxUnavailableError with docker's error message.
        """
        process = await asyncio.create_subprocess_exec(
            *self.argv, *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd="/", env=env or {}
        )
        try:
            async with asyncio.timeout(CLIENT_S):
                out, err = await process.communicate()
        except TimeoutError:
            raise SandboxUnavailableError(f"docker {words[0]} took longer than {CLIENT_S:g} s") from None
        finally:
            await let_go(process)
        if process.returncode != 0:
            raise SandboxUnavailableError(_why(err.decode(errors="replace"), process.returncode or 0))
        return out.decode(errors="replace").strip()

    async def hold(self, *words: str) -> Process:
        """A `docker run` that stays open, once its program has printed its first line. That program reads until we exit
        or close the client's input; the daemon ensures this even if the client is killed along with us. Raises
        SandboxUnavailableError."""
        process = await asyncio.create_subprocess_exec(
            *self.argv, *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd="/", env={}, start_new_session=True
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(CLIENT_S):
                if await process.stdout.readline():
                    return process
                _, err = await process.communicate()
        except TimeoutError:
            await let_go(process)
            raise SandboxUnavailableError(f"docker {words[0]} took longer than {CLIENT_S:g} s") from None
        raise SandboxUnavailableError(_why(err.decode(errors="replace"), process.returncode or 0))


async def let_go(process: Process) -> None:
    """End the `docker run` that ``hold`` opened."""
    if process.returncode is None:
        process.kill()
    await process.wait()


def _why(stderr: str, code: int) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not line.startswith("See ")]
    said = lines[0].removeprefix("docker: ").removeprefix("Error response from daemon: ") if lines else ""
    if "No such image" in said or "Unable to find image" in said:
        return MISSING
    return f"docker does not work here: {said[:300].rstrip('.?') or f'exit code {code}'}"


class Recipe(Struct, frozen=True):
    """What a container is made for, and its `docker run` options; ``reusable``: for several programs.

    ``mounts`` is what its mounts must show: if something else is there now, the recipe is a different one.
    """

    conversation: str
    options: tuple[str, ...]
    mounts: tuple[ExpectedMount, ...] = ()
    reusable: bool = True


class Container(Struct):
    """A running container, and the Enclosure of the program in it. It lives as long as ``line``, a docker client that
    ends with us. ``pid`` is its first process; ``groups`` are its control groups, if we can see them; ``before``: how
    often it had reached its limits when the program started."""

    owner: Containers
    name: str
    recipe: Recipe
    line: Process
    pid: int
    groups: dict[str, Path] = field(default_factory=dict)
    unwanted: bool = False
    before: dict[str, int] = field(default_factory=dict)

    @property
    def container(self) -> str:
        """The container's name, as `docker ps` shows it."""
        return self.name

    def reached(self) -> dict[str, int]:
        """How often a limit was reached in it so far, by limit."""
        controllers = {"memory": "memory", "processes": "pids"}
        return {
            limit: count(self.groups[controllers[limit]], files, key)
            for limit, files, key in EVENTS
            if controllers[limit] in self.groups
        }

    def limit_reached(self) -> str:
        """Reports only what happened since the program started."""
        now = self.reached().items()
        return explain(
            tuple(limit for limit, times in now if times > self.before.get(limit, 0)), self.owner.limits
        )

    async def kill_all(self) -> None:
        """Kill the container with everything in it."""
        self.unwanted = True
        await self.owner.end([self])

    async def close(self) -> None:
        """Keep the container for the next program, unless processes are still running in it."""
        await self.owner.leave(self)

    @property
    def alone(self) -> bool | None:
        """Whether only its first process is left; None if we cannot tell."""
        return members(self.groups["pids"]) == [self.pid] if "pids" in self.groups else None

    def kill(self) -> bool:
        """Kill everything in it without the daemon, through its first process (pid_namespaces(7)). True if it has ended
        or is about to."""
        if "pids" not in self.groups:
            return False
        if self.pid not in members(self.groups["pids"]):
            return True
        system = this_system()
        if (process := system.handle(self.pid)) is None:
            return False
        try:
            # The number may belong to another process by now.
            if self.pid not in members(self.groups["pids"]):
                return False
            system.send(process, signal.SIGKILL)
        except OSError:
            return False
        finally:
            os.close(process)
        return True


class Containers:
    """All containers of this worker; ``limits`` apply to each."""

    def __init__(self, docker: Docker, idle_s: float, limits: ResourceLimits) -> None:
        self.limits = limits
        self._docker = docker
        self._idle_s = idle_s
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._owner = owned_name()
        self._idle: list[Container] = []
        self._busy: list[Container] = []
        self._to_remove: set[str] = set()
        self._removing: asyncio.Task[None] | None = None

    async def enclose(self, recipe: Recipe, argv: tuple[str, ...]) -> tuple[Container, tuple[str, ...]]:
        """A container for one program, and its client's command ``argv`` with the container's name for ``PLACE``.
        Raises SandboxUnavailableError."""
        container, at = await self.enter(recipe), argv.index(PLACE)
        return container, (*argv[:at], container.name, *argv[at + 1 :])

    async def enter(self, recipe: Recipe) -> Container:
        """A container for one program: an idle one, or a new one. Raises SandboxUnavailableError."""
        while found := next((one for one in self._idle if one.recipe == recipe), None):
            self._idle.remove(found)
            self._leaving.pop(found.name).cancel()
            self._busy.append(found)
            # A mount disappears with the name it covers, and a replacement may even get the same inode.
            if not await self._mistaken(found.name, recipe):
                found.before = found.reached()
                return found
            self._busy.remove(found)
            await self.end([found])
        # The same conversation with a different sandbox: containers made for the old one are of no use any more.
        if recipe.conversation:
            await self._discard(self._waiting_for(recipe.conversation))
        made = await self._make(recipe)
        made.before = made.reached()
        self._busy.append(made)
        return made

    async def leave(self, container: Container) -> None:
        """The program or its client has ended: kill what is left of it."""
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
        """The conversation is over: remove its containers; a busy one as soon as its program has ended."""
        for container in self._busy:
            container.unwanted |= container.recipe.conversation == conversation
        await self._discard(self._waiting_for(conversation))

    async def sweep(self) -> int:
        """Remove the containers of workers that no longer run; returns how many."""
        listing = await self._docker.run(
            "ps", "-a", "--filter", f"label={OWNER}", "--format", f'{{{{.Names}}}} {{{{.Label "{OWNER}"}}}}'
        )
        rows = [line.split() for line in listing.splitlines()]
        left = [row[0] for row in rows if len(row) == 2 and ownerless(row[1])]
        if left:
            await self._docker.run("rm", "-f", *left)
        return len(left)

    async def close(self) -> None:
        """Remove every container. The next worker sweeps any that the daemon does not remove now."""
        await self._discard([*self._idle, *self._busy])
        if self._removing is not None:
            self._removing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._removing

    def _waiting_for(self, conversation: str) -> list[Container]:
        return [one for one in self._idle if one.recipe.conversation == conversation]

    async def _expire(self, container: Container) -> None:
        await asyncio.sleep(self._idle_s)
        del self._leaving[container.name]
        await self._discard([container])

    async def _make(self, recipe: Recipe) -> Container:
        name = owned_name()
        making = asyncio.create_task(self._run(name, recipe), name=f"container:{name}")
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            # A half-made container would belong to nobody.
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
        groups = await asyncio.to_thread(_groups_of, int(pid), full_id)
        return Container(self, name, recipe, line, int(pid), groups)

    async def _mistaken(self, name: str, recipe: Recipe) -> str:
        """One line if a mount is not as requested; "" otherwise. No program runs in the container."""
        asked = ("exec", "--workdir", "/", name, *question(recipe.mounts))
        try:
            return mismatch(
                recipe.mounts,
                await self._docker.run(*asked),
                identities=this_system().native_containers,
            )
        except SandboxUnavailableError as error:
            return f"its mounts cannot be checked ({error})"

    async def _alone(self, container: Container) -> bool:
        if container.alone is not None:
            # The client learns of the end before the last process is gone.
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
            await self.end(containers)

    async def end(self, containers: list[Container]) -> None:
        """Kill the containers; docker then removes them on its own. One that is already gone is not an error."""
        try:
            await self._docker.run("kill", *(container.name for container in containers))
        except SandboxUnavailableError:
            self._to_remove |= {container.name for container in containers if not container.kill()}
            if self._to_remove and (self._removing is None or self._removing.done()):
                self._removing = asyncio.create_task(self._remove(), name="remove containers")
        for container in containers:
            await let_go(container.line)

    async def _remove(self) -> None:
        """Remove those that could not be killed, as soon as the daemon answers again."""
        while self._to_remove:
            await asyncio.sleep(DAEMON_AGAIN_S)
            names, label = set(self._to_remove), f"label={OWNER}={self._owner}"
            with contextlib.suppress(SandboxUnavailableError):
                listed = await self._docker.run("ps", "-a", "--filter", label, "--format", "{{.Names}}")
                if left := [name for name in listed.split() if name in names]:
                    await self._docker.run("rm", "-f", *left)
                self._to_remove -= names


def _groups_of(pid: int, container_id: str) -> dict[str, Path]:
    """The control groups of a container's first process, by controller; empty if we cannot see them (then ``pid`` is a
    different process here, or none)."""
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

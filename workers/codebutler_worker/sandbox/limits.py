"""What an agent and all its children may use together: memory, processes, processor time, file size.

Control groups enforce this where the user may create them. Rlimits always limit the file size, and inside a sandbox at
least the processes: there RLIMIT_NPROC counts only what runs inside (user_namespaces(7)); without a sandbox it would
count everything the user runs, so it is not set. It never limits root, but no agent is root. RLIMIT_DATA limits memory
per process: private writable memory, not mere reservations (getrlimit(2)).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.schema import SandboxSection
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.cgroups import ResourceLimits, Slot, find_slots, kill, stale
from codebutler_worker.sandbox.port import Launch, Sandbox, SandboxPolicy, owned_name

SHELL = "/bin/sh"
BLOCK_BYTES = 512  # POSIX: the unit of `ulimit -f`
NO_CORE = "ulimit -c 0"
# Lowering a limit always works; this fails only if the limit is already stricter.
FILE_SIZE = "ulimit -f {blocks} 2>/dev/null || :"
DATA = "ulimit -d {kilobytes} 2>/dev/null || :"
# bash calls it -u, dash -p.
PROCESSES = "ulimit -u {count} 2>/dev/null || ulimit -p {count} 2>/dev/null || :"
JOIN = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 126; shift; done; shift'
RUN = 'exec "$@"'
REMOVE_S = 1.0
AGAIN_S = 0.005
OPTIONAL = ("memory.memsw.limit_in_bytes", "memory.swap.max")
"""A group has these files only if the kernel accounts for swap."""

USUAL = ResourceLimits(memory_bytes=4096 * 2**20, processes=512)
"""The defaults for an agent on this machine itself."""

EVENTS = (
    ("memory", ("memory.events", "memory.oom_control"), "oom_kill"),
    ("processes", ("pids.events",), "max"),
)


def configured(section: SandboxSection, usual: ResourceLimits | None = None) -> ResourceLimits:
    """The limits from ``sandbox`` in the configuration; where it sets none, ``usual`` (None = USUAL)."""
    usual = usual or USUAL
    memory, processes, cpus = section.memory_mb, section.processes, section.cpus
    return ResourceLimits(
        memory_bytes=usual.memory_bytes if memory is None else memory * 2**20,
        processes=usual.processes if processes is None else processes,
        file_bytes=section.file_size_gb * 2**30,
        cpus=usual.cpus if cpus is None else cpus,
    )


def listed(limits: ResourceLimits, each: str = "", unheld: Collection[str] = ()) -> str:
    """The limits, for people. ``each``: what the memory limit applies to; ``unheld``: controllers that nothing
    enforces."""
    found = (
        ("memory", limits.memory_bytes, f"{limits.memory_bytes // 2**20} MB of memory{each}"),
        ("pids", limits.processes, f"{limits.processes} processes"),
        ("fsize", limits.file_bytes, f"{limits.file_bytes // 2**30} GB per file"),
        ("cpu", limits.cpus, f"{limits.cpus:g} processors"),
    )
    parts = [
        f"{words} (not enforceable here)" if name in unheld else words
        for name, value, words in found
        if value
    ]
    return ", ".join(parts) or "everything"


def entrance(limits: ResourceLimits, data_bytes: int = 0) -> tuple[str, ...]:
    """The command that sets the rlimits that work everywhere, from the first instruction on. Its arguments: the files
    of the groups to join, ``--``, and the program's. ``data_bytes``: memory per process, if no group counts the total
    (0 = no limit). Pure."""
    size = (FILE_SIZE.format(blocks=limits.file_bytes // BLOCK_BYTES),) if limits.file_bytes else ()
    data = (DATA.format(kilobytes=data_bytes // 1024),) if data_bytes else ()
    return (SHELL, "-c", "; ".join((NO_CORE, *size, *data, JOIN, RUN)), "limits")


def inner(argv: tuple[str, ...], limits: ResourceLimits) -> tuple[str, ...]:
    """``argv`` as it is started inside the sandbox if no control group counts processes. Pure."""
    return (SHELL, "-c", f"{PROCESSES.format(count=limits.processes)}; {RUN}", "limits", *argv)


def count(directory: Path, files: tuple[str, ...], key: str) -> int:
    """The number after ``key`` in the first of ``files`` that exists; 0 if there is none."""
    for file in files:
        with contextlib.suppress(OSError):
            words = (directory / file).read_text(encoding="ascii").split()
            return int(words[words.index(key) + 1]) if key in words else 0
    return 0


def explain(reached: tuple[str, ...], limits: ResourceLimits) -> str:
    """One line for people: which limits an agent reached and what to do. Empty if none. Pure."""
    words = {
        "memory": f"{limits.memory_bytes // 2**20} MB of memory (sandbox.memoryMb)",
        "processes": f"{limits.processes} processes (sandbox.processes)",
    }
    if not reached:
        return ""
    which = " and ".join(words[name] for name in reached)
    return f"The agent reached its limit of {which}: ask for less at once, or raise the limit."


class ControlGroup(Struct, frozen=True):
    """The limits around one program: a control group in each of ``directories``, from before its start until after its
    end. It has no ``container``."""

    directories: tuple[Path, ...]
    limits: ResourceLimits
    container: str = ""

    def limit_reached(self) -> str:
        """One line about the limits that a process in the groups reached, "" if none."""
        found = tuple(
            limit
            for limit, files, key in EVENTS
            if any(count(directory, files, key) for directory in self.directories)
        )
        return explain(found, self.limits) if found else ""

    async def kill_all(self) -> None:
        """Nothing to do: killing the group's first program, or the sandbox, ends them all."""

    async def close(self, within_s: float = REMOVE_S) -> None:
        """Kill everything left in the groups, and remove them."""
        left = list(self.directories)
        for attempt in range(int(within_s / AGAIN_S)):
            for directory in [*left]:
                try:
                    directory.rmdir()
                except FileNotFoundError:
                    pass
                except OSError:
                    if attempt:  # most are just ending
                        kill(directory)
                    continue
                left.remove(directory)
            if not left:
                return
            # The kernel sends no event when the last process is gone.
            await asyncio.sleep(AGAIN_S)


class Limiter:
    """Creates limits for each program. ``slots`` is where control groups can be created, () = nowhere."""

    def __init__(self, limits: ResourceLimits, slots: tuple[Slot, ...] = ()) -> None:
        self.limits = limits
        self.slots = slots
        self._settings = [(slot, limits.settings(slot)) for slot in slots]
        # Version 1 has a file for single threads to join. With it the kernel need not pause all forks first, which can
        # take 10 ms per group (Linux 6.18, ``cgroup_procs_write_start``).
        self._joins = ["tasks" if slot.version == 1 else "cgroup.procs" for slot in slots]
        self._script = entrance(limits, 0 if self.holds("memory") else limits.memory_bytes)

    @classmethod
    def detect(cls, limits: ResourceLimits) -> Limiter:
        """Detect what this machine allows this user."""
        return cls(limits, find_slots() if limits.any else ())

    async def enclose(self, argv: tuple[str, ...]) -> tuple[ControlGroup, tuple[str, ...]]:
        """Groups for ``argv``, and the command of a shell that joins them, sets the limits that no group enforces as
        rlimits, and becomes ``argv``. Raises SandboxUnavailableError if a group can no longer be created: no program
        starts without limits."""
        name = owned_name() if self.slots else ""
        made: list[Path] = []
        try:
            for slot, settings in self._settings:
                (directory := slot.directory / name).mkdir()
                made.append(directory)
                for file, text in settings:
                    if file not in OPTIONAL or (directory / file).exists():
                        (directory / file).write_text(text, encoding="ascii")
        except OSError as error:
            for directory in made:
                directory.rmdir()
            raise SandboxUnavailableError(
                f"the agent's limits cannot be set ({error.filename}: {error.strerror}): "
                "restart CodeButler, or set them to 0"
            ) from error
        joins = [str(directory / file) for directory, file in zip(made, self._joins, strict=True)]
        return ControlGroup(tuple(made), self.limits), (*self._script, *joins, "--", *argv)

    async def sweep(self) -> int:
        """Kill and remove the groups of workers that no longer run; returns how many."""
        left = stale(self.slots)
        await ControlGroup(tuple(left), self.limits).close()
        return len({path.name for path in left})

    def holds(self, controller: str) -> bool:
        """Whether a control group enforces ``controller``."""
        return any(controller in slot.controllers for slot in self.slots)

    def summary(self, *, sandboxed: bool) -> str:
        """The limits in force, in one line."""
        unheld = {
            name for name, held in (("pids", sandboxed), ("cpu", False)) if not held and not self.holds(name)
        }
        each = "" if self.holds("memory") else " for each process"
        kinds = sorted({f"control groups v{slot.version}" for slot in self.slots})
        return (
            f"each agent may use {listed(self.limits, each, unheld)} ({', '.join(kinds) or 'rlimits only'})"
        )


class AgentSandbox(Sandbox):
    """Wraps another sandbox: adds the committer for git, and the limits.

    ``committer`` is the environment that names the committer; a policy's own variables take precedence. No ``limiter``:
    the sandbox has limits of its own.
    """

    def __init__(self, sandbox: Sandbox, limiter: Limiter | None = None) -> None:
        self.name = sandbox.name
        self.committer: dict[str, str] = {}
        self._sandbox = sandbox
        self._limiter = limiter
        self._counts_inside = limiter is not None and sandbox.name == "bwrap" and not limiter.holds("pids")

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """Wrap as the inner sandbox does, within the limits."""
        policy = replace(policy, env={**self.committer, **policy.env})
        if self._limiter is None:
            return self._sandbox.wrap(argv, policy)
        limits = self._limiter.limits
        # A control group that counts memory counts this too.
        policy = replace(policy, scratch_bytes=limits.memory_bytes)
        if self._counts_inside and limits.processes:
            # The sandbox makes the program it starts visible; that is now the shell.
            program = (Path(argv[0]),) if Path(argv[0]).is_absolute() else ()
            argv, policy = inner(argv, limits), replace(policy, readable=(*policy.readable, *program))
        return replace(self._sandbox.wrap(argv, policy), enclose=self._limiter.enclose)

    async def self_test(self) -> None:
        """Run the inner sandbox's self-test."""
        await self._sandbox.self_test()

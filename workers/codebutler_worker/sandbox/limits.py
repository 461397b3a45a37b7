"""What an agent and all its children may use together: memory, processes, processor time, file size.

Control groups enforce this where the user may create them. Rlimits always limit the file size, and inside a sandbox at
least the processes: there RLIMIT_NPROC counts only what runs inside (user_namespaces(7)); without a sandbox it would
count everything the user runs, so it is not set. It never limits root, but no agent is root. RLIMIT_DATA limits memory
per process: private writable memory, not mere reservations (getrlimit(2)).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from codebutler.config.schema import SandboxSection
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.cgroups import (
    EVENTS,
    ResourceLimits,
    Slot,
    count,
    find_slots,
    owned_name,
    remove,
    stale,
)
from codebutler_worker.sandbox.common import Launch, Sandbox, SandboxPolicy

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
OPTIONAL = ("memory.memsw.limit_in_bytes", "memory.swap.max")
"""A group has these files only if the kernel accounts for swap."""


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


USUAL = ResourceLimits(memory_bytes=4096 * 2**20, processes=512)
"""The defaults for an agent on this machine itself."""


def outer(
    argv: tuple[str, ...], limits: ResourceLimits, join_files: tuple[Path, ...], data_bytes: int = 0
) -> tuple[str, ...]:
    """``argv`` in the groups of ``join_files``, with the rlimits that work everywhere, from its first instruction on.
    ``data_bytes``: memory per process, if no group counts the total (0 = no limit)."""
    size = (FILE_SIZE.format(blocks=limits.file_bytes // BLOCK_BYTES),) if limits.file_bytes else ()
    data = (DATA.format(kilobytes=data_bytes // 1024),) if data_bytes else ()
    script = "; ".join((NO_CORE, *size, *data, JOIN, RUN))
    return (SHELL, "-c", script, "limits", *map(str, join_files), "--", *argv)


def inner(argv: tuple[str, ...], limits: ResourceLimits) -> tuple[str, ...]:
    """``argv`` as it is started inside the sandbox if no control group counts processes. Pure."""
    return (SHELL, "-c", f"{PROCESSES.format(count=limits.processes)}; {RUN}", "limits", *argv)


def explain(struck: tuple[str, ...], limits: ResourceLimits) -> str:
    """One line for people: which limits an agent reached and what to do. Empty if none. Pure."""
    words = {
        "memory": f"{limits.memory_bytes // 2**20} MB of memory (sandbox.memoryMb)",
        "processes": f"{limits.processes} processes (sandbox.processes)",
    }
    if not struck:
        return ""
    which = " and ".join(words[name] for name in struck)
    return f"The agent reached its limit of {which}: ask for less at once, or raise the limit."


@dataclass(slots=True)
class ControlGroup:
    """The limits around one program: a control group in each of ``slots``, from before its start until after its end.
    It has no ``container``. Raises OSError if a group cannot be created."""

    slots: tuple[Slot, ...]
    name: str
    limits: ResourceLimits
    directories: list[Path] = field(default_factory=list)
    container: str = ""

    def __post_init__(self) -> None:
        try:
            for slot in self.slots:
                directory = slot.directory / self.name
                directory.mkdir()
                self.directories.append(directory)
                for file, text in self.limits.settings(slot):
                    if (directory / file).exists() or file not in OPTIONAL:
                        (directory / file).write_text(text, encoding="ascii")
        except OSError:
            for directory in self.directories:
                directory.rmdir()
            raise

    def enter(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """A shell joins the groups, sets the limits that no group enforces as rlimits, and becomes the program."""
        counted = any("memory" in slot.controllers for slot in self.slots)
        # Version 1 has a file for single threads to join. With it the kernel need not pause all forks first, which can
        # take 10 ms per group (Linux 6.18, ``cgroup_procs_write_start``).
        join_files = tuple(
            directory / ("tasks" if slot.version == 1 else "cgroup.procs")
            for slot, directory in zip(self.slots, self.directories, strict=True)
        )
        return outer(argv, self.limits, join_files, 0 if counted else self.limits.memory_bytes)

    def struck(self) -> str:
        """One line about the limits that a process in the groups reached, "" if none."""
        found = tuple(
            limit
            for limit, files, key in EVENTS
            if any(count(directory, files, key) for directory in self.directories)
        )
        return explain(found, self.limits) if found else ""

    async def burst(self) -> None:
        """Nothing to do: killing the group's first program, or the sandbox, ends them all."""

    async def close(self) -> None:
        """Kill everything left in the groups."""
        await remove(self.directories)


@dataclass(frozen=True, slots=True)
class Limiter:
    """Creates limits for each program. ``slots`` is where control groups can be created, () = nowhere."""

    limits: ResourceLimits
    slots: tuple[Slot, ...] = ()

    @classmethod
    def detect(cls, limits: ResourceLimits) -> Limiter:
        """Detect what this machine allows this user."""
        return cls(limits, find_slots() if limits.any else ())

    async def begin(self) -> ControlGroup:
        """Raises SandboxUnavailableError if a group can no longer be created: no program starts without limits."""
        try:
            return ControlGroup(self.slots, owned_name() if self.slots else "", self.limits)
        except OSError as error:
            raise SandboxUnavailableError(
                f"the agent's limits cannot be set ({error.filename}: {error.strerror}): "
                "restart CodeButler, or set them to 0"
            ) from error

    async def sweep(self) -> int:
        """Kill and remove the groups of workers that no longer run; returns how many."""
        left = stale(self.slots)
        await remove(left)
        return len({path.name for path in left})

    def holds(self, controller: str) -> bool:
        """Whether a control group enforces ``controller``."""
        return any(controller in slot.controllers for slot in self.slots)

    def told(self, *, sandboxed: bool) -> str:
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

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """Wrap as the inner sandbox does, within the limits."""
        policy = replace(policy, env={**self.committer, **policy.env})
        if self._limiter is None:
            return self._sandbox.wrap(argv, policy)
        limits = self._limiter.limits
        # A control group that counts memory counts this too.
        policy = replace(policy, scratch_bytes=limits.memory_bytes)
        if self.name == "bwrap" and limits.processes and not self._limiter.holds("pids"):
            # The sandbox makes the program it starts visible; that is now the shell.
            program = (Path(argv[0]),) if Path(argv[0]).is_absolute() else ()
            argv, policy = inner(argv, limits), replace(policy, readable=(*policy.readable, *program))
        return replace(self._sandbox.wrap(argv, policy), enclose=self._limiter.begin)

    async def self_test(self) -> None:
        """Run the inner sandbox's self-test."""
        await self._sandbox.self_test()

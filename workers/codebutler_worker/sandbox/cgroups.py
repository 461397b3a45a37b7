"""Control groups: one of them around a program and all it starts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

from codebutler_worker.sandbox.groupfiles import count, members, write
from codebutler_worker.sandbox.owners import PREFIX, ownerless
from codebutler_worker.sandbox.slots import Slot

CPU_PERIOD_US = 100_000
REMOVE_S = 1.0
AGAIN_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What all of a group's processes get together; 0 = no limit."""

    memory_bytes: int = 0
    processes: int = 0
    cpus: float = 0

    def settings(self, slot: Slot) -> list[tuple[str, str]]:
        """(file, text) to write into a group of ``slot``. Swap is memory too, where the kernel counts it."""
        lines: list[tuple[str, str]] = []
        quota = int(self.cpus * CPU_PERIOD_US)
        if "pids" in slot.controllers and self.processes:
            lines.append(("pids.max", str(self.processes)))
        if "memory" in slot.controllers and self.memory_bytes:
            size = str(self.memory_bytes)
            names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
            lines += [("memory.max", size), ("memory.swap.max", "0")] * (slot.version == 2)
            lines += [(name, size) for name in names] * (slot.version == 1)
        if "cpu" in slot.controllers and quota:
            lines += [("cpu.max", f"{quota} {CPU_PERIOD_US}")] * (slot.version == 2)
            lines += [("cpu.cfs_period_us", str(CPU_PERIOD_US)), ("cpu.cfs_quota_us", str(quota))] * (
                slot.version == 1
            )
        return lines


EVENTS = (
    ("memory", ("memory.events", "memory.oom_control"), "oom_kill"),
    ("processes", ("pids.events",), "max"),
)
OPTIONAL = ("memory.memsw.limit_in_bytes", "memory.swap.max")


@dataclass(slots=True)
class Group:
    """One group in each of ``slots``. Raises OSError if it cannot be made."""

    slots: tuple[Slot, ...]
    name: str
    bounds: Bounds
    directories: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            for slot in self.slots:
                directory = slot.directory / self.name
                directory.mkdir()
                self.directories.append(directory)
                for file, text in self.bounds.settings(slot):
                    if (directory / file).exists() or file not in OPTIONAL:
                        (directory / file).write_text(text, encoding="ascii")
        except OSError:
            for directory in self.directories:
                directory.rmdir()
            raise

    @property
    def doors(self) -> tuple[Path, ...]:
        """The files into which a process of one thread writes "0" to join.

        Version 1 has one for single threads, where the kernel need not hold still all forks first: that can cost
        10 ms for each group (Linux 6.18, ``cgroup_procs_write_start``)."""
        return tuple(
            directory / ("tasks" if slot.version == 1 else "cgroup.procs")
            for slot, directory in zip(self.slots, self.directories, strict=True)
        )

    def struck(self) -> tuple[str, ...]:
        """Which of "memory" and "processes" something in here ran into."""
        struck = []
        for name, files, key in EVENTS:
            if any(count(directory, files, key) for directory in self.directories):
                struck.append(name)
        return tuple(struck)

    async def remove(self) -> None:
        """Kill what is left and take the group away."""
        await remove(self.directories)


async def remove(directories: list[Path], within_s: float = REMOVE_S) -> bool:
    """Kill what is in ``directories`` and remove them; False if some stay."""
    left = list(directories)
    for _ in range(int(within_s / AGAIN_S)):
        left = [directory for directory in left if not _removed(directory)]
        if not left:
            return True
        # The kernel tells nobody when the last process is gone for good.
        await asyncio.sleep(AGAIN_S)
    return False


def _removed(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        _kill(directory)
        return False
    return True


def _kill(directory: Path) -> None:
    if (directory / "cgroup.kill").exists():
        write(directory / "cgroup.kill", "1")
        return
    # Nothing new is born meanwhile, so this comes to an end.
    write(directory / "pids.max", "0")
    for pid in members(directory):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def stale(slots: tuple[Slot, ...]) -> list[Path]:
    """The groups of workers that are no more."""
    return [
        directory
        for slot in slots
        for directory in slot.directory.glob(f"{PREFIX}*-*-*-*")
        if ownerless(directory.name)
    ]

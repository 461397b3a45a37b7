"""Control groups: where this user may create them, and what is written into one around a program and all its children.

Kernel: Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Literal

from msgspec import Struct

from codebutler_worker.sandbox.port import PREFIX, ownerless


def members(directory: Path) -> list[int]:
    """The processes in a group, as far as we can see them; empty if there is no such group."""
    try:
        # 0 stands for a process that our pid namespace cannot see.
        return [
            pid
            for word in (directory / "cgroup.procs").read_text(encoding="ascii").split()
            if (pid := int(word))
        ]
    except OSError:
        return []


def write(file: Path, text: str) -> None:
    """Write to a file of a group; does nothing if the file is missing or the kernel refuses."""
    if file.exists():
        with contextlib.suppress(OSError):
            file.write_text(text, encoding="ascii")


# Where this user may create control groups, and with which controllers. On a hybrid system, with versions 1 and 2 side
# by side, each controller is used where it is found.

CONTROLLERS = ("pids", "memory", "cpu")
# A version 2 group with controllers may not hold processes itself, so ours move into this one.
OWN_LEAF = f"{PREFIX}own"


class Slot(Struct, frozen=True):
    """A directory in which we create groups, and the ``controllers`` they get there."""

    directory: Path
    version: Literal[1, 2]
    controllers: tuple[str, ...]


def own_slots(membership: str, mountinfo: str) -> tuple[Slot, ...]:
    """Our own groups, from /proc/self/cgroup and /proc/self/mountinfo. Pure. A version 2 slot has no controllers yet:
    only its files list them."""
    mounts = _mounts(mountinfo)
    slots = []
    for line in membership.splitlines():
        _, names, path = line.split(":", 2)
        wanted = tuple(name for name in names.split(",") if name in CONTROLLERS)
        mount = mounts.get(wanted[0] if wanted else names)
        if mount is None or not (wanted or names == ""):
            continue
        root, where = mount
        # In a container the mount may show only the part of the tree below ``root``.
        below = path.removeprefix(root.rstrip("/")) if path.startswith(root) else "/"
        slots.append(Slot(where / below.lstrip("/"), 1 if wanted else 2, wanted))
    return tuple(slots)


def _mounts(mountinfo: str) -> dict[str, tuple[str, Path]]:
    """Controller ("" for version 2) -> (root, mount point)."""
    found: dict[str, tuple[str, Path]] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        root, where = before.split()[3:5]
        kind, _, options = after.split(maxsplit=2)
        if kind == "cgroup2":
            found[""] = (root, Path(where))
        elif kind == "cgroup":
            found |= {name: (root, Path(where)) for name in options.split(",") if name in CONTROLLERS}
    return found


def find_slots() -> tuple[Slot, ...]:
    """Where we can really create groups, version 1 first. Empty if nowhere."""
    try:
        membership = Path("/proc/self/cgroup").read_text(encoding="utf-8")
        slots = own_slots(membership, Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    usable = [slot for slot in slots if slot.version == 1 and _can_make(slot.directory)]
    missing = [name for name in CONTROLLERS if not any(name in slot.controllers for slot in usable)]
    for slot in slots:
        if slot.version == 2 and missing:
            places = (_with_controllers(place, missing) for place in (slot.directory, slot.directory.parent))
            usable += [place for place in places if place is not None][:1]
    return tuple(usable)


def _with_controllers(directory: Path, wanted: list[str]) -> Slot | None:
    """``directory`` with those of ``wanted`` that its groups get, enabling them if we may."""
    switch = directory / "cgroup.subtree_control"
    if not os.access(switch, os.W_OK) or not _can_make(directory):
        return None
    offered = (directory / "cgroup.controllers").read_text(encoding="ascii").split()
    if any(name in offered for name in wanted) and _delegated(directory):
        _step_aside(directory)
    for name in wanted:
        if name in offered:
            write(switch, f"+{name}")
    given = switch.read_text(encoding="ascii").split()
    controllers = tuple(name for name in wanted if name in given)
    return Slot(directory, 2, controllers) if controllers else None


def _delegated(directory: Path) -> bool:
    """True if systemd delegated this group to its service (Delegate=yes)."""
    for name in ("trusted.delegate", "user.delegate"):
        with contextlib.suppress(OSError, AttributeError):
            if os.getxattr(directory, name) == b"1":
                return True
    return False


def _step_aside(directory: Path) -> None:
    leaf = directory / OWN_LEAF
    with contextlib.suppress(OSError):
        leaf.mkdir(exist_ok=True)
        for pid in members(directory):
            write(leaf / "cgroup.procs", str(pid))


def _can_make(directory: Path) -> bool:
    probe = directory / f"{PREFIX}probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


# A control group around a program and all its children.

CPU_PERIOD_US = 100_000


class ResourceLimits(Struct, frozen=True, kw_only=True):
    """What a program and all its children may use together; 0 = no limit. No control group enforces ``file_bytes``."""

    memory_bytes: int = 0
    processes: int = 0
    file_bytes: int = 0
    cpus: float = 0

    @property
    def any(self) -> bool:
        """Whether any limit is set."""
        return any((self.memory_bytes, self.processes, self.file_bytes, self.cpus))

    def settings(self, slot: Slot) -> list[tuple[str, str]]:
        """(file, text) to write into a group of ``slot``. Swap counts as memory if the kernel accounts for it."""
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


def kill(directory: Path) -> None:
    """Kill the processes in a group."""
    if (directory / "cgroup.kill").exists():
        write(directory / "cgroup.kill", "1")
        return
    # No new process can start in the meantime, so this terminates.
    write(directory / "pids.max", "0")
    for pid in members(directory):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def stale(slots: tuple[Slot, ...]) -> list[Path]:
    """The groups of workers that no longer run."""
    return [
        directory
        for slot in slots
        for directory in slot.directory.glob(f"{PREFIX}*-*-*-*")
        if ownerless(directory.name)
    ]

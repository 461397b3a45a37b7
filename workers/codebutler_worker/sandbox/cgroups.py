"""Control groups: where this user may make them, whose each is, and one around a program and all it starts.

Kernel: Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from codebutler.platform.processes import pid_namespace, seen

# Whose a group, a container or a program is: its name tells which worker made it, and so whether that is no more.

PREFIX = "codebutler-"


def owned_name() -> str:
    """``codebutler-<pid namespace>-<our pid>-<our start time>-<random>``: whose it is can be told later."""
    pid = os.getpid()
    return f"{PREFIX}{pid_namespace()}-{pid}-{_start_time(pid)}-{secrets.token_hex(8)}"


def ownerless(name: str) -> bool:
    """``name`` was made by owned_name, in a process of our namespace that is no more."""
    parts = name.removeprefix(PREFIX).split("-")
    if not name.startswith(PREFIX) or len(parts) != 4:
        return False
    space, pid, started, _ = parts
    return space == str(pid_namespace()) and pid.isdecimal() and _start_time(int(pid)) != started


def _start_time(pid: int) -> str:
    """Clock ticks since boot, "" if there is no such process."""
    found = seen(pid)
    return found.started if found else ""


def members(directory: Path) -> list[int]:
    """The processes in a group, as far as we see them; none if there is no such group."""
    try:
        # 0: a process that our pid namespace does not see.
        return [
            pid
            for word in (directory / "cgroup.procs").read_text(encoding="ascii").split()
            if (pid := int(word))
        ]
    except OSError:
        return []


def count(directory: Path, files: tuple[str, ...], key: str) -> int:
    """What the first of ``files`` that is there says after ``key``; 0 if none does."""
    for file in files:
        with contextlib.suppress(OSError):
            words = (directory / file).read_text(encoding="ascii").split()
            return int(words[words.index(key) + 1]) if key in words else 0
    return 0


def write(file: Path, text: str) -> None:
    """Write into a file of a group; nothing happens where there is none, or the kernel refuses."""
    if file.exists():
        with contextlib.suppress(OSError):
            file.write_text(text, encoding="ascii")


# Where this user may make control groups, and with which controllers. Version 1 and version 2 side by side, as on a
# hybrid system: each controller is used where it is found.

CONTROLLERS = ("pids", "memory", "cpu")
# A group of version 2 with controllers has no processes of its own: ours move into this one.
OWN_LEAF = f"{PREFIX}own"


@dataclass(frozen=True, slots=True)
class Slot:
    """A directory in which groups are made, and which ``controllers`` they get there."""

    directory: Path
    version: Literal[1, 2]
    controllers: tuple[str, ...]


def own_slots(membership: str, mountinfo: str) -> tuple[Slot, ...]:
    """Where we are, by /proc/self/cgroup and /proc/self/mountinfo. Pure; one of version 2 comes without
    controllers, which only its files tell."""
    mounts = _mounts(mountinfo)
    slots = []
    for line in membership.splitlines():
        _, names, path = line.split(":", 2)
        wanted = tuple(name for name in names.split(",") if name in CONTROLLERS)
        mount = mounts.get(wanted[0] if wanted else names)
        if mount is None or not (wanted or names == ""):
            continue
        root, where = mount
        # In a container the mount may show only the part of the tree that begins at ``root``.
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
    """Where groups can really be made by us, version 1 first. Empty where there are none."""
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
    """``directory`` with those of ``wanted`` that its groups get, switched on if we may."""
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
    """systemd marks what it leaves to a service (Delegate=yes)."""
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


# Control groups: one of them around a program and all it starts.

CPU_PERIOD_US = 100_000
REMOVE_S = 1.0
AGAIN_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """What a program and all it starts get together; 0 = no limit. No group holds ``file_bytes``."""

    memory_bytes: int = 0
    processes: int = 0
    file_bytes: int = 0
    cpus: float = 0

    @property
    def any(self) -> bool:
        """Whether anything is limited at all."""
        return any((self.memory_bytes, self.processes, self.file_bytes, self.cpus))

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

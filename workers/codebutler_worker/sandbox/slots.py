"""Where this user may make control groups, and with which controllers.

Version 1 and version 2 side by side, as on a hybrid system: each controller is used where it is found.
Kernel: Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from codebutler_worker.sandbox.groupfiles import members, write
from codebutler_worker.sandbox.owners import PREFIX

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

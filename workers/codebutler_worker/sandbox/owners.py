"""Whose a group is: its name tells which worker made it, and so whether that is no more."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

PREFIX = "codebutler-"


def group_name() -> str:
    """``codebutler-<pid namespace>-<our pid>-<our start time>-<random>``: whose it is can be told later."""
    pid = os.getpid()
    return f"{PREFIX}{_namespace()}-{pid}-{_start_time(pid)}-{secrets.token_hex(8)}"


def ownerless(name: str) -> bool:
    """``name`` is of group_name's making, by a process of our namespace that is no more."""
    parts = name.removeprefix(PREFIX).split("-")
    if not name.startswith(PREFIX) or len(parts) != 4 or parts[0] != _namespace() or not parts[1].isdecimal():
        return False
    return _start_time(int(parts[1])) != parts[2]


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def _start_time(pid: int) -> str:
    """Clock ticks since boot, "" if there is no such process: proc(5), field 22 of stat."""
    try:
        return (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rsplit(")")[-1]
            .split()[19]
        )
    except OSError:
        return ""

"""Whose a group is: its name tells which worker made it, and so whether that is no more."""

from __future__ import annotations

import os
import secrets

from codebutler.process.table import pid_namespace, seen

PREFIX = "codebutler-"


def group_name() -> str:
    """``codebutler-<pid namespace>-<our pid>-<our start time>-<random>``: whose it is can be told later."""
    pid = os.getpid()
    return f"{PREFIX}{pid_namespace()}-{pid}-{_start_time(pid)}-{secrets.token_hex(8)}"


def ownerless(name: str) -> bool:
    """``name`` is of group_name's making, by a process of our namespace that is no more."""
    parts = name.removeprefix(PREFIX).split("-")
    if not name.startswith(PREFIX) or len(parts) != 4:
        return False
    space, pid, started, _ = parts
    return space == str(pid_namespace()) and pid.isdecimal() and _start_time(int(pid)) != started


def _start_time(pid: int) -> str:
    """Clock ticks since boot, "" if there is no such process."""
    found = seen(pid)
    return found.started if found else ""

"""A container's system call filter in docker's format: the same rules as under bubblewrap.

Docker's own profile, which this replaces, allows what no namespace contains (sockets to the host of a virtual machine,
AF_VSOCK), `io_uring` in older versions, and setuid files. What it refuses beyond our rules is refused here too. It uses
names, so that it works on any machine the daemon runs on; arguments are compared as 64 bits.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Any

import msgspec

from codebutler.platform.system import this_system
from codebutler_worker.sandbox.seccomp import (
    AARCH64,
    MAKING,
    NEW_NAMESPACES,
    NEW_TIME,
    SEIZING,
    SETGID,
    SETUID,
    TERMINAL_INPUT,
    X86_64,
)

WORD = 0xFFFFFFFF
"""The kernel takes these arguments as 32 bits."""
OLD = (
    "afs_syscall", "get_mempolicy", "getpmsg", "mbind", "name_to_handle_at", "putpmsg", "security", "set_mempolicy",
    "set_mempolicy_home_node", "stime", "sysfs", "tuxcall", "umount", "ustat", "vm86", "vm86old", "vserver",
)  # fmt: skip
"""Obsolete, or only for privileges that no agent has: docker's profile refuses them."""
FAMILIES = (1, 2, 10, 16)
NETLINK = 16
MOST_FAMILIES = 64
MODES = {
    "creat": 1, "chmod": 1, "fchmod": 1, "mknod": 1, "mknodat": 2, "fchmodat": 2, "fchmodat2": 2,
}  # fmt: skip
OPENING = {"open": (1, 2), "openat": (2, 3)}

Condition = dict[str, Any]


class ProfileFile:
    """A file that docker's client can read. It lives as long as ``owner``, which starts containers later."""

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._paths: dict[bool, str] = {}

    def option(self, *, shared: bool = False) -> str:
        """For `docker run`; ``shared``: see ``seccomp.program``."""
        if shared not in self._paths:
            self._paths[shared] = this_system().unwritable(profile(shared=shared), self._owner)
        return f"--security-opt=seccomp={self._paths[shared]}"


def profile(*, shared: bool = False) -> bytes:
    """JSON for ``--security-opt=seccomp=FILE``. ``shared``: see ``seccomp.program``."""
    rules = [_refused(sorted({*X86_64, *AARCH64, *OLD})), _refused(("clone3", "openat2"), code=errno.ENOSYS)]
    rules += [_refused(("clone",), _any(0, bit)) for bit in _bits(NEW_NAMESPACES)]
    rules += [_refused(("unshare",), _any(0, bit)) for bit in _bits(NEW_NAMESPACES | NEW_TIME)]
    # All but asking: which ones are harmless cannot be decided here.
    rules.append(_refused(("personality",), _compared(0, "SCMP_CMP_NE", WORD)))
    rules += [_refused(("ptrace",), _is(0, request)) for request in SEIZING]
    rules += [_refused(("ioctl",), _is(1, request)) for request in TERMINAL_INPUT]
    sockets = ("socket", "socketpair")
    rules += [_refused(sockets, _is(0, one)) for one in range(MOST_FAMILIES) if one not in FAMILIES]
    rules.append(_refused(sockets, _compared(0, "SCMP_CMP_GE", MOST_FAMILIES)))
    rules.append(_refused(sockets, _is(0, NETLINK), _compared(2, "SCMP_CMP_NE", 0)))
    for bit in (SETUID,) if shared else (SETUID, SETGID):
        rules += [_refused((name,), _any(mode, bit)) for name, mode in MODES.items()]
    for bit in (SETUID, SETGID):
        for name, (flags, mode) in OPENING.items():
            rules += [_refused((name,), _any(flags, making), _any(mode, bit)) for making in _bits(MAKING)]
    return msgspec.json.encode({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules})


def _refused(names: Iterable[str], *conditions: Condition, code: int = errno.EPERM) -> dict[str, Any]:
    return {
        "names": list(names),
        "action": "SCMP_ACT_ERRNO",
        "errnoRet": code,
        "args": list(conditions),
        "includes": {},
        "excludes": {},
    }


def _compared(index: int, how: str, value: int, other: int = 0) -> Condition:
    return {"index": index, "value": value, "valueTwo": other, "op": how}


def _is(index: int, value: int) -> Condition:
    return _compared(index, "SCMP_CMP_MASKED_EQ", WORD, value)


def _any(index: int, bit: int) -> Condition:
    return _compared(index, "SCMP_CMP_MASKED_EQ", bit, bit)


def _bits(mask: int) -> list[int]:
    return [1 << place for place in range(mask.bit_length()) if mask >> place & 1]

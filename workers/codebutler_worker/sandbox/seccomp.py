"""The system calls refused to an agent and all its children, as a program for the kernel's filter.

A sandbox is only as strong as the kernel. We refuse calls that no agent's program needs and that have been used to
break out of namespaces. seccomp(2), bpf(2); the classic BPF of Linux's linux/filter.h, little endian.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from codebutler.platform.system import this_system

# System call numbers, by machine: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux
# 6.18. From 424 on they are the same on all machines.

LAST = 469
"""file_setattr(2), the newest call reviewed when this list was made."""

# Refused with any arguments.
NEW = {
    "io_uring_setup": 425,  # its operations bypass every filter
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}
X86_64 = {
    "syslog": 103, "uselib": 134, "vhangup": 153, "modify_ldt": 154, "pivot_root": 155,
    "_sysctl": 156, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167,
    "swapoff": 168, "reboot": 169, "iopl": 172, "ioperm": 173, "create_module": 174, "init_module": 175,
    "delete_module": 176, "get_kernel_syms": 177, "query_module": 178, "quotactl": 179, "nfsservctl": 180,
    "lookup_dcookie": 212, "clock_settime": 227, "kexec_load": 246, "add_key": 248, "request_key": 249,
    "keyctl": 250, "migrate_pages": 256, "move_pages": 279, "perf_event_open": 298, "fanotify_init": 300,
    "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310,
    "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "kexec_file_load": 320, "bpf": 321,
    "userfaultfd": 323, **NEW,
}  # fmt: skip
AARCH64 = {
    "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "nfsservctl": 42, "chroot": 51,
    "vhangup": 58, "quotactl": 60, "acct": 89, "kexec_load": 104, "init_module": 105, "delete_module": 106,
    "clock_settime": 112, "syslog": 116, "reboot": 142, "settimeofday": 170, "add_key": 217,
    "request_key": 218, "keyctl": 219, "swapon": 224, "swapoff": 225, "migrate_pages": 238, "move_pages": 239,
    "perf_event_open": 241, "fanotify_init": 262, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268,
    "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "bpf": 280,
    "userfaultfd": 282, "kexec_file_load": 294, **NEW,
}  # fmt: skip


class Table(Struct, frozen=True):
    """The calls to check on one kind of machine. ``architecture``: the kernel's name for it (linux/audit.h);
    ``numbers``: the calls whose arguments are checked; ``refused``: the calls refused with any arguments; ``modes``:
    which argument of a call is a file's mode; ``opening``: which arguments are the flags and, if the flags create a
    file, its mode; ``x32``: a second ABI shares the architecture."""

    architecture: int
    numbers: Mapping[str, int]
    refused: tuple[int, ...]
    modes: Mapping[int, int]
    opening: Mapping[int, tuple[int, int]]
    x32: bool = False


TABLES: Mapping[str, Table] = MappingProxyType(
    {
        "x86_64": Table(
            0xC000003E,
            {"ioctl": 16, "socket": 41, "socketpair": 53, "clone": 56, "ptrace": 101, "personality": 135,
             "unshare": 272, "clone3": 435, "openat2": 437},
            tuple(X86_64.values()),
            # creat, chmod, fchmod, mknod, mknodat, fchmodat, fchmodat2; open, openat.
            modes=MappingProxyType({85: 1, 90: 1, 91: 1, 133: 1, 259: 2, 268: 2, 452: 2}),
            opening=MappingProxyType({2: (1, 2), 257: (2, 3)}),
            x32=True,
        ),
        "aarch64": Table(
            0xC00000B7,
            {"ioctl": 29, "personality": 92, "unshare": 97, "ptrace": 117, "socket": 198, "socketpair": 199,
             "clone": 220, "clone3": 435, "openat2": 437},
            tuple(AARCH64.values()),
            # mknodat, fchmod, fchmodat, fchmodat2; openat.
            modes=MappingProxyType({33: 2, 52: 1, 53: 2, 452: 2}),
            opening=MappingProxyType({56: (2, 3)}),
        ),
    }
)  # fmt: skip


ALLOW = 0x7FFF0000
KILL = 0x80000000
ERRNO = 0x00050000

EPERM = ERRNO | errno.EPERM
ENOSYS = ERRNO | errno.ENOSYS

# struct seccomp_data. Only the lower half of each argument is checked: the kernel, too, treats these as 32 bits.
NUMBER, ARCHITECTURE, ARGUMENTS, ARGUMENT_BYTES = 0, 4, 16, 8
LOAD, EQUAL, AT_LEAST, ABOVE, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x25, 0x45, 0x06

X32 = 0x40000000
"""Calls of the x32 ABI have this bit; their architecture is the same as x86-64's."""
NO_CALL = 0xFFFFFFFF
"""A tracer uses this number to skip a call; the kernel answers ENOSYS."""

NEW_NAMESPACES = 0x7E020000
NEW_TIME = 0x80
"""CLONE_NEWTIME; in clone(2) the same bits are the exit signal."""
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
"""personality(2): plain Linux, 2.6 version numbers, 32-bit uname, both, and asking; not those that turn off
protections."""
SEIZING = (16, 0x4206)
"""PTRACE_ATTACH and PTRACE_SEIZE, ptrace(2): tracing a process that did not ask for it, as a debugger's own child
does."""
TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: typing into a terminal, ioctl_tty(2)."""
SETUID, SETGID = 0o4000, 0o2000
"""Mode bits that run a file as its owner or group, inode(7). A nosuid mount inside does not protect somebody
outside."""
MAKING = 0x40 | 0x400000
"""O_CREAT and O_TMPFILE's own bit, open(2): only with them is there a mode."""
UNIX, INET, NETLINK, INET6 = 1, 2, 16, 10
"""The allowed socket families (socket(2)). No AF_VSOCK or similar: network namespaces do not contain those."""
ROUTE = 0
"""The only kind of netlink socket allowed: addresses and routes, netlink(7)."""

Code = Sequence[bytes]


def machines() -> tuple[str, ...]:
    """The machines (``uname -m``) that have a filter."""
    return tuple(TABLES)


def program(machine: str, *, shared: bool = False) -> bytes:
    """The filter for ``machine``. ``shared``: git shares its directories with a group (core.sharedRepository), which
    needs SETGID. Raises KeyError for a machine that is not in ``machines()``."""
    table = TABLES[machine]
    number = table.numbers
    code = [
        _op(LOAD, ARCHITECTURE), _op(EQUAL, table.architecture, yes=1), _op(RETURN, KILL), _op(LOAD, NUMBER),
        *_foreign(table),
        # Calls newer than our list: a program takes ENOSYS to mean that the kernel is older.
        _op(ABOVE, LAST, no=1), _op(RETURN, ENOSYS),
    ]  # fmt: skip
    for refused in table.refused:
        code += _when(refused, [_op(RETURN, EPERM)])
    # Its flags are in memory, which no filter can read. C libraries fall back on clone(2).
    code += _when(number["clone3"], [_op(RETURN, ENOSYS)])
    code += _when(number["clone"], _without_bits(0, NEW_NAMESPACES))
    code += _when(number["unshare"], _without_bits(0, NEW_NAMESPACES | NEW_TIME))
    code += _when(number["personality"], [*_one_of(0, PERSONALITIES), _op(RETURN, EPERM)])
    code += _when(number["ptrace"], _none_of(0, SEIZING))
    code += _when(number["ioctl"], _none_of(1, TERMINAL_INPUT))
    for name in ("socket", "socketpair"):
        code += _when(number[name], _sockets())
    bits = SETUID if shared else SETUID | SETGID
    for call, mode in table.modes.items():
        code += _when(call, _without_bits(mode, bits))
    for call, (flags, mode) in table.opening.items():
        code += _when(call, _making(flags, mode))
    # Its mode is in memory too. Programs fall back on openat(2).
    code += _when(number["openat2"], [_op(RETURN, ENOSYS)])
    return b"".join((*code, _op(RETURN, ALLOW)))


def _foreign(table: Table) -> Code:
    if not table.x32:
        return ()
    beyond = [_op(EQUAL, NO_CALL, no=1), _op(RETURN, ENOSYS), _op(RETURN, KILL)]
    return (_op(AT_LEAST, X32, no=len(beyond)), *beyond)


def _op(code: int, operand: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; ``yes`` and ``no`` are how many instructions to skip."""
    return struct.pack("<HBBI", code, yes, no, operand)


def _when(number: int, block: Code) -> Code:
    """``block``, which ends the program, for this call only."""
    return (_op(EQUAL, number, no=len(block)), *block)


def _argument(index: int) -> bytes:
    return _op(LOAD, ARGUMENTS + ARGUMENT_BYTES * index)


def _one_of(index: int, values: Iterable[int]) -> Code:
    """Allow these values; otherwise continue."""
    allowed = (word for value in values for word in (_op(EQUAL, value, no=1), _op(RETURN, ALLOW)))
    return (_argument(index), *allowed)


def _none_of(index: int, values: Iterable[int]) -> Code:
    refused = (word for value in values for word in (_op(EQUAL, value, no=1), _op(RETURN, EPERM)))
    return (_argument(index), *refused, _op(RETURN, ALLOW))


def _without_bits(index: int, mask: int) -> Code:
    return (_argument(index), _op(ANY_BIT, mask, no=1), _op(RETURN, EPERM), _op(RETURN, ALLOW))


def _making(flags: int, mode: int) -> Code:
    judged = _without_bits(mode, SETUID | SETGID)
    return (_argument(flags), _op(ANY_BIT, MAKING, no=len(judged)), *judged, _op(RETURN, ALLOW))


def _sockets() -> Code:
    of_netlink = [*_one_of(2, (ROUTE,)), _op(RETURN, EPERM)]
    return (
        *_one_of(0, (UNIX, INET, INET6)),
        _op(EQUAL, NETLINK, no=len(of_netlink)), *of_netlink,
        _op(RETURN, EPERM),
    )  # fmt: skip


# The system call filter in a file that bubblewrap or docker's client can read.

FD = 9
"""The descriptor that bubblewrap reads it from. Shells support single digits only."""
OPEN = f'exec "$@" {FD}<"$0"'


class FilterFile:
    """Lives as long as this object. ``missing``: this machine has no filter. ``paths``: where it can be read, by
    whether git makes files group-writable (``shared``: see ``program``)."""

    def __init__(self, machine: str | None = None) -> None:
        machine = machine or platform.machine()
        self.missing = machine not in machines()
        self.machine = machine
        self.paths: dict[bool, str] = {}
        for shared in () if self.missing else (False, True):
            self.paths[shared] = this_system().unwritable(program(machine, shared=shared), self)

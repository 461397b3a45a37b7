"""The system calls that an agent and all it starts are refused, as a program for the kernel's filter. Pure.

Walls are as thin as the kernel behind them: what is refused here is what no program of an agent's needs, and what
breaks out of namespaces have used. seccomp(2), bpf(2); the classic BPF of Linux's linux/filter.h, little endian.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Sequence

from codebutler_worker.sandbox.syscalls import LAST, TABLES, Table

ALLOW = 0x7FFF0000
KILL = 0x80000000
ERRNO = 0x00050000

EPERM = ERRNO | errno.EPERM
ENOSYS = ERRNO | errno.ENOSYS

# struct seccomp_data. Of each argument only the lower half is looked at: the kernel, too, takes these as 32 bits.
NUMBER, ARCHITECTURE, ARGUMENTS, ARGUMENT_BYTES = 0, 4, 16, 8
LOAD, EQUAL, AT_LEAST, ABOVE, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x25, 0x45, 0x06

X32 = 0x40000000
"""Calls of the x32 ABI have this bit, under the same architecture as x86-64's own."""
NO_CALL = 0xFFFFFFFF
"""What a tracer skips a call with; the kernel answers that there is none."""

NEW_NAMESPACES = 0x7E020000
NEW_TIME = 0x80
"""CLONE_NEWTIME; in clone(2) the same bits are the signal at exit."""
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
"""personality(2): Linux as it is, 2.6 version numbers, uname as 32 bits, both, and asking; not the ones that take
protections away."""
SEIZING = (16, 0x4206)
"""PTRACE_ATTACH and PTRACE_SEIZE, ptrace(2): tracing what has not asked for it. A debugger's own child has."""
TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: typing into a terminal, ioctl_tty(2)."""
SETUID, SETGID = 0o4000, 0o2000
"""Bits of a file's mode: whoever runs it becomes its owner, or of its group, inode(7). No mount that is nosuid inside
keeps somebody outside from that."""
MAKING = 0x40 | 0x400000
"""O_CREAT and the bit of O_TMPFILE that is its own, open(2): only with them is there a mode."""
UNIX, INET, NETLINK, INET6 = 1, 2, 16, 10
"""The families of sockets there are (socket(2)). No AF_VSOCK and its like: no network namespace holds those."""
ROUTE = 0
"""The one kind of netlink: addresses and routes, netlink(7)."""

Code = Sequence[bytes]


def machines() -> tuple[str, ...]:
    """For which machines (``uname -m``) there is a filter."""
    return tuple(TABLES)


def program(machine: str, *, shared: bool = False) -> bytes:
    """The filter for ``machine``. ``shared``: git gives its directories to a group, which takes SETGID
    (core.sharedRepository). Raises KeyError for one that is not in ``machines()``."""
    table = TABLES[machine]
    number = table.numbers
    code = [
        _op(LOAD, ARCHITECTURE), _op(EQUAL, table.architecture, yes=1), _op(RETURN, KILL), _op(LOAD, NUMBER),
        *_foreign(table),
        # What came after the last call that was judged: programs take it that the kernel is older.
        _op(ABOVE, LAST, no=1), _op(RETURN, ENOSYS),
    ]  # fmt: skip
    for refused in table.refused:
        code += _when(refused, [_op(RETURN, EPERM)])
    # Its flags lie in memory, where no filter can look. C libraries fall back on clone(2).
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
    # Its mode, too, lies in memory. Programs fall back on openat(2).
    code += _when(number["openat2"], [_op(RETURN, ENOSYS)])
    return b"".join((*code, _op(RETURN, ALLOW)))


def _foreign(table: Table) -> Code:
    if not table.x32:
        return ()
    beyond = [_op(EQUAL, NO_CALL, no=1), _op(RETURN, ENOSYS), _op(RETURN, KILL)]
    return (_op(AT_LEAST, X32, no=len(beyond)), *beyond)


def _op(code: int, operand: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; ``yes`` and ``no`` are how many to skip."""
    return struct.pack("<HBBI", code, yes, no, operand)


def _when(number: int, block: Code) -> Code:
    """``block``, which ends the program, for this call only."""
    return (_op(EQUAL, number, no=len(block)), *block)


def _argument(index: int) -> bytes:
    return _op(LOAD, ARGUMENTS + ARGUMENT_BYTES * index)


def _one_of(index: int, values: Iterable[int]) -> Code:
    """Allow these; else go on."""
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

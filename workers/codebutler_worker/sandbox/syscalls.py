"""Numbers of system calls, by machine: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h
of Linux 6.18. From 424 on they are everywhere the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

LAST = 469
"""file_setattr(2), the last call that was looked at when the list was made."""

# Refused whatever their arguments.
NEW = {
    "io_uring_setup": 425,  # its operations pass by every filter
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


@dataclass(frozen=True, slots=True)
class Table:
    """``architecture``: what the kernel calls it (linux/audit.h); ``numbers``: of the calls whose arguments are
    judged; ``refused``: those that are refused whatever theirs; ``modes``: which argument of a call is a file's mode;
    ``opening``: which are the flags and, where they make a file, its mode; ``x32``: a second ABI shares the
    architecture."""

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

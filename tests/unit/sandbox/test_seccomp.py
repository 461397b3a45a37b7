"""The filter's verdicts, by the kernel's own rules for such programs."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.sandbox import seccomp
from codebutler_worker.sandbox.seccomp import AARCH64, ALLOW, ENOSYS, EPERM, KILL, LAST, TABLES, X86_64

PROGRAMS = {machine: list(struct.iter_unpack("<HBBI", seccomp.program(machine))) for machine in TABLES}
I386, ARM = 0x40000003, 0x40000028
# What every program needs: read, write, openat, mmap, execve, fork, futex, connect, bind, epoll, memfd, getrandom.
NEEDED = {
    "x86_64": (0, 1, 257, 9, 59, 57, 202, 42, 49, 232, 319, 318, 61, 62, 39, 334, 439, 449),
    "aarch64": (63, 64, 56, 222, 221, 98, 203, 200, 22, 279, 278, 260, 129, 172, 439, 449),
}


def verdict(machine: str, number: int, *arguments: int, architecture: int = 0) -> int:
    """Run the program as the kernel does. Any jump beyond its end or unknown instruction raises."""
    words = [argument & (2**64 - 1) for argument in (*arguments, *(0,) * (6 - len(arguments)))]
    data = struct.pack("<IIQ6Q", number, architecture or TABLES[machine].architecture, 0, *words)
    at, held = 0, 0
    while True:
        code, yes, no, operand = PROGRAMS[machine][at]
        at += 1
        match code:
            case seccomp.LOAD:
                (held,) = struct.unpack_from("<I", data, operand)
                continue
            case seccomp.RETURN:
                return int(operand)
            case seccomp.EQUAL:
                met = held == operand
            case seccomp.AT_LEAST:
                met = held >= operand
            case seccomp.ABOVE:
                met = held > operand
            case seccomp.ANY_BIT:
                met = bool(held & operand)
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")
        at += yes if met else no


@pytest.mark.parametrize("machine", TABLES)
def test_what_programs_need_is_allowed(machine: str) -> None:
    assert {verdict(machine, number) for number in NEEDED[machine]} == {ALLOW}


@pytest.mark.parametrize(("machine", "names"), [("x86_64", X86_64), ("aarch64", AARCH64)])
def test_each_refused_call_is_refused(machine: str, names: dict[str, int]) -> None:
    assert {name: verdict(machine, number, 2**64 - 1) for name, number in names.items()} == dict.fromkeys(
        names, EPERM
    )


@pytest.mark.parametrize("machine", TABLES)
def test_both_machines_refuse_the_same(machine: str) -> None:
    assert len(TABLES[machine].refused) == len(set(TABLES[machine].refused))
    of_x86_alone = {"uselib", "modify_ldt", "_sysctl", "iopl", "ioperm"} | {
        "create_module",
        "get_kernel_syms",
        "query_module",
    }
    assert set(X86_64) - of_x86_alone == set(AARCH64)


@pytest.mark.parametrize("machine", TABLES)
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", (0x01200011,), ALLOW),  # fork
        ("clone", (0x003D0F00,), ALLOW),  # a thread
        ("clone", (0x91,), ALLOW),  # a signal at exit with the bit that means NEWTIME elsewhere
        *(("clone", (0x11 | 1 << bit,), EPERM) for bit in (17, 25, 26, 27, 28, 29, 30)),
        ("clone", (1 << 32 | 0x11,), ALLOW),
        ("clone3", (0,), ENOSYS),
        ("unshare", (0x10000000,), EPERM),
        ("unshare", (0x80,), EPERM),
        ("unshare", (0xFFFFFFFF00000400 | 1 << 28,), EPERM),
        ("unshare", (0x600,), ALLOW),  # files and working directory of its own
        ("personality", (0xFFFFFFFF,), ALLOW),
        ("personality", (2**64 - 1,), ALLOW),
        ("personality", (0x0040000,), EPERM),  # no randomised addresses
        ("personality", (0x0400000,), EPERM),  # whatever can be read can be executed
        ("ptrace", (16,), EPERM),
        ("ptrace", (0x4206,), EPERM),
        ("ptrace", (1 << 32 | 16,), EPERM),
        ("ptrace", (0,), ALLOW),  # a debugger's child asks to be traced
        ("ioctl", (0, 0x5412), EPERM),
        ("ioctl", (0, 0x541C), EPERM),
        ("ioctl", (0, 0xDEADBEEF00005412), EPERM),  # the kernel looks at the lower half only, and so do we
        ("ioctl", (0, 0x5413), ALLOW),
        ("socket", (1, 1), ALLOW),
        ("socket", (2, 2), ALLOW),
        ("socket", (10, 1), ALLOW),
        ("socket", (16, 3, 0), ALLOW),
        ("socket", (16, 3, 9), EPERM),
        *(("socket", (family, 1), EPERM) for family in (0, 17, 21, 29, 30, 31, 38, 40, 44, 45)),
        ("socket", (1 << 32 | 40, 1), EPERM),
        ("socketpair", (1, 1), ALLOW),
        ("socketpair", (30, 1), EPERM),
    ],
)
def test_arguments_are_judged(machine: str, name: str, arguments: tuple[int, ...], expected: int) -> None:
    assert verdict(machine, TABLES[machine].numbers[name], *arguments) == expected


@pytest.mark.parametrize("machine", TABLES)
@pytest.mark.parametrize(("mode", "expected"), [(0o755, ALLOW), (0o1777, ALLOW), (0o4755, EPERM), (0o2775, EPERM),
                                                (0o106711, EPERM), (1 << 32 | 0o644, ALLOW)])  # fmt: skip
def test_no_file_makes_who_runs_it_somebody_else(machine: str, mode: int, expected: int) -> None:
    table = TABLES[machine]
    for call, place in table.modes.items():
        assert verdict(machine, call, *(2**64 - 1,) * place, mode) == expected
    for call, (flags, place) in table.opening.items():
        for making in (0x40, 0x40 | 1, 0x410000, 0x410002):
            assert (
                verdict(machine, call, *(0,) * flags, making, *(0,) * (place - flags - 1), mode) == expected
            )
        # Without a file to make it is no mode, whatever stands there.
        assert verdict(machine, call, *(0,) * flags, 0x8000, *(0,) * (place - flags - 1), mode) == ALLOW
    assert verdict(machine, table.numbers["openat2"]) == ENOSYS


@pytest.mark.parametrize("machine", TABLES)
def test_a_call_nobody_has_judged_does_not_exist(machine: str) -> None:
    assert verdict(machine, LAST) == ALLOW
    assert verdict(machine, LAST + 1) == ENOSYS
    assert verdict(machine, 999) == ENOSYS


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6))
def test_another_architecture_is_the_end(number: int, arguments: list[int]) -> None:
    for machine, table in TABLES.items():
        for other in (I386, ARM, *(one.architecture for one in TABLES.values())):
            if other != table.architecture:
                assert verdict(machine, number, *arguments, architecture=other) == KILL


def test_the_second_abi_of_x86_is_the_end_too() -> None:
    assert verdict("x86_64", 0x40000000 | 39) == KILL
    assert verdict("x86_64", 0xFFFFFFFE) == KILL
    assert verdict("x86_64", 0xFFFFFFFF) == ENOSYS


@given(
    st.sampled_from(sorted(TABLES)),
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6),
)
def test_every_call_has_one_of_four_verdicts(machine: str, number: int, arguments: list[int]) -> None:
    assert verdict(machine, number, *arguments) in (ALLOW, EPERM, ENOSYS, KILL)


def test_the_kernel_takes_no_longer_program() -> None:
    """BPF_MAXINSNS."""
    assert all(0 < len(program) <= 4096 for program in PROGRAMS.values())

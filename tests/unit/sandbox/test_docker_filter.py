"""The filter for docker says what the one for bubblewrap says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from codebutler_worker.sandbox.docker import MODES, OPENING, profile
from codebutler_worker.sandbox.seccomp import AARCH64, SETGID, SETUID, X86_64


def rules(*, shared: bool = False) -> list[dict[str, Any]]:
    made = msgspec.json.decode(profile(shared=shared))
    assert made["defaultAction"] == "SCMP_ACT_ALLOW"
    assert {rule["action"] for rule in made["syscalls"]} == {"SCMP_ACT_ERRNO"}
    return list(made["syscalls"])


def refused(name: str, *arguments: int, shared: bool = False) -> bool:
    """By libseccomp's rules: a rule fits where all its conditions do; arguments are compared as 64 bits."""
    given = [*arguments, *(0,) * (6 - len(arguments))]
    met: dict[str, Callable[[int, int, int], bool]] = {
        "SCMP_CMP_MASKED_EQ": lambda is_, mask, value: is_ & mask == value,
        "SCMP_CMP_NE": lambda is_, value, _: is_ != value,
        "SCMP_CMP_GE": lambda is_, value, _: is_ >= value,
    }
    return any(
        name in rule["names"]
        and all(
            met[each["op"]](given[each["index"]], each["value"], each["valueTwo"]) for each in rule["args"]
        )
        for rule in rules(shared=shared)
    )


def test_what_is_refused_by_name_is_refused_here_too() -> None:
    assert all(refused(name) for name in (*X86_64, *AARCH64, "clone3", "openat2"))
    everyday = (
        "read",
        "write",
        "openat",
        "execve",
        "fork",
        "mmap",
        "connect",
        "futex",
        "clone",
        "socket",
        "chmod",
    )
    assert not any(refused(name, 2) for name in everyday)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", (0x01200011,), False),
        ("clone", (0x10000011,), True),
        ("unshare", (0x80,), True),
        ("unshare", (0x600,), False),
        ("personality", (0xFFFFFFFF,), False),
        ("personality", (0x0040000,), True),
        ("ptrace", (0,), False),
        ("ptrace", (1 << 32 | 16,), True),
        ("ioctl", (0, 0xDEADBEEF00005412), True),
        ("ioctl", (0, 0x5413), False),
        ("socket", (1, 1), False),
        ("socket", (10, 1), False),
        ("socket", (16, 3, 0), False),
        ("socket", (16, 3, 9), True),
        ("socket", (40, 1), True),
        ("socket", (1 << 32 | 40, 1), True),
        ("socketpair", (1, 1), False),
        ("socketpair", (30, 1), True),
    ],
)
def test_arguments_are_judged(name: str, arguments: tuple[int, ...], expected: bool) -> None:
    assert refused(name, *arguments) is expected


def test_no_file_makes_who_runs_it_somebody_else() -> None:
    for name, place in MODES.items():
        assert not refused(name, *(0,) * place, 0o755)
        assert refused(name, *(0,) * place, SETUID | 0o755)
        assert refused(name, *(0,) * place, SETGID | 0o755)
        assert refused(name, *(0,) * place, SETUID | 0o755, shared=True)
        assert not refused(name, *(0,) * place, SETGID | 0o755, shared=True)
    for name, (flags, _) in OPENING.items():
        for making in (0x41, 0x410002):
            assert refused(name, *(0,) * flags, making, SETUID)
            assert not refused(name, *(0,) * flags, making, 0o644)
        assert not refused(name, *(0,) * flags, 0, SETUID)

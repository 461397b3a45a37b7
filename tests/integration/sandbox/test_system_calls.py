"""Attacks through system calls, made for real behind the real walls. Each says how the kernel answered."""

from __future__ import annotations

import errno
import os
import platform
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.port import SandboxPolicy
from codebutler_worker.sandbox.seccomp import TABLES, X86_64, FilterFile
from tests.programs import require
from tests.walls import ended

PRELUDE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *words):
    got = libc.syscall(ctypes.c_long(number), *map(ctypes.c_ulong, words))
    print("done" if got >= 0 else ctypes.get_errno(), flush=True)
"""
# In the registers that int 0x80 takes, from a page below 4 GB: getpid of i386.
I386 = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes([0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3]))
code = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
print("got", code(), flush=True)
"""
NUMBERS = TABLES[platform.machine()].numbers
OTHER_ABIS = [I386, f"{PRELUDE}\ncall(0x40000000 | 39)"] if platform.machine() == "x86_64" else []


@pytest.fixture
def sandbox() -> BwrapSandbox:
    return BwrapSandbox(program=require("bwrap"))


@pytest.fixture
def policy(tmp_path: Path, git_repo: Path) -> SandboxPolicy:
    require("python3")
    return SandboxPolicy(workdir=git_repo, home=tmp_path / "home", env={"PATH": "/usr/bin:/bin"})


async def python(sandbox: BwrapSandbox, policy: SandboxPolicy, script: str) -> tuple[int, str]:
    code, said = await ended(sandbox.wrap(("python3", "-I", "-c", script), policy))
    return code, said.strip()


async def test_every_refused_call_is_refused_by_the_kernel(
    sandbox: BwrapSandbox, policy: SandboxPolicy
) -> None:
    numbers = TABLES[platform.machine()].refused
    code, said = await python(sandbox, policy, f"{PRELUDE}\nfor n in {numbers!r}: call(n, 0, 0, 0, 0, 0, 0)")
    assert code == 0
    assert said.split() == [str(errno.EPERM)] * len(numbers)


@pytest.mark.parametrize(
    ("attack", "answer"),
    [
        # What would succeed without the filter, on this very machine.
        (f"call({NUMBERS['clone']}, 0x10000011, 0, 0, 0, 0)", errno.EPERM),  # a user namespace
        (f"call({NUMBERS['unshare']}, 0x10000000)", errno.EPERM),
        (f"call({NUMBERS['clone3']}, 0, 0)", errno.ENOSYS),
        (f"call({NUMBERS['personality']}, 0x0040000)", errno.EPERM),
        (f"call({NUMBERS['socket']}, 40, 1, 0)", errno.EPERM),  # to the machine's host: no namespace holds it
        (f"call({NUMBERS['socket']}, 38, 5, 0)", errno.EPERM),  # the kernel's own ciphers
        (f"call({NUMBERS['socket']}, 16, 3, 9)", errno.EPERM),  # its audit
        ("call(999)", errno.ENOSYS),
    ],
)
async def test_arguments_are_judged_by_the_kernel(
    sandbox: BwrapSandbox, policy: SandboxPolicy, attack: str, answer: int
) -> None:
    assert await python(sandbox, policy, f"{PRELUDE}\n{attack}") == (0, str(answer))


async def test_no_process_reads_another_one(sandbox: BwrapSandbox, policy: SandboxPolicy) -> None:
    """Its own child even, which the kernel by itself lets it."""
    script = f"""{PRELUDE}
child = os.fork()
if not child:
    import signal
    signal.pause()
import platform
attach, readv = (101, 310) if platform.machine() == "x86_64" else (117, 270)
call(attach, 0x4206, child, 0, 0)
call(attach, 16, child, 0, 0)
call(readv, child, 0, 0, 0, 0, 0)
os.kill(child, 9)
"""
    assert await python(sandbox, policy, script) == (0, "1\n1\n1")


@pytest.mark.parametrize("request_code", [0x5412, 0x541C, 0x100005412])
async def test_nothing_is_typed_into_a_terminal(
    sandbox: BwrapSandbox, policy: SandboxPolicy, request_code: int
) -> None:
    """A terminal of its own, where this kernel may still allow it."""
    script = f"""{PRELUDE}
import fcntl, pty, termios
master, slave = pty.openpty()
os.setsid()
fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
word = ctypes.create_string_buffer(b"x")
call({NUMBERS["ioctl"]}, slave, {request_code}, ctypes.addressof(word))
"""
    assert await python(sandbox, replace(policy, own_terminal=True), script) == (0, "1")


@pytest.mark.parametrize("script", OTHER_ABIS)
async def test_another_abi_is_the_end(sandbox: BwrapSandbox, policy: SandboxPolicy, script: str) -> None:
    code, said = await python(sandbox, policy, script)
    assert (code, said) == (128 + signal.SIGSYS, "")


async def test_what_programs_do_all_day_still_works(sandbox: BwrapSandbox, policy: SandboxPolicy) -> None:
    script = """
import asyncio, concurrent.futures, multiprocessing, os, socket, subprocess, threading
a, b = socket.socketpair()
a.send(b"x"); assert b.recv(1) == b"x"
socket.if_nameindex()
t = threading.Thread(target=print, args=("thread",)); t.start(); t.join()
assert subprocess.run(["sh", "-c", "exit 3"]).returncode == 3
with multiprocessing.get_context("fork").Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]
async def main():
    p = await asyncio.create_subprocess_exec("true"); assert await p.wait() == 0
asyncio.run(main())
if not os.fork():
    import ctypes, signal
    assert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0  # to be traced by one's parent, as under a debugger
    os.kill(os.getpid(), signal.SIGSTOP)
child, status = os.waitpid(-1, 0)
assert os.WIFSTOPPED(status)
os.kill(child, 9)
print("well")
"""
    assert await python(sandbox, policy, script) == (0, "thread\nwell")


async def test_the_filter_stays_as_it_is_and_out_of_sight(
    sandbox: BwrapSandbox, policy: SandboxPolicy
) -> None:
    argv = sandbox.wrap(("true",), policy).argv
    [path] = [word for word in argv if word.startswith(f"/proc/{os.getpid()}/")]
    with pytest.raises(PermissionError):
        Path(path).write_bytes(b"")
    code, said = await python(
        sandbox, policy, "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"
    )
    assert (code, said) == (0, "[0, 1, 2, 3]")  # 3: the listing itself


async def test_a_machine_without_a_table_has_no_filter() -> None:
    assert FilterFile("pdp11").missing
    assert FilterFile("pdp11").paths == {}
    assert not FilterFile("aarch64").missing
    assert X86_64["bpf"] == 321

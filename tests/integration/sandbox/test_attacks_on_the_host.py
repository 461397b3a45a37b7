"""More of the battery: what an agent leaves for others of this machine to run, to open or to answer."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

from codebutler_worker.sandbox.docker import DockerSandbox
from codebutler_worker.tree.tree import Git, Tree
from tests.integration.sandbox.attacker import Attacker
from tests.ordinary import give_away

BITS = stat.S_ISUID | stat.S_ISGID
MAKE = """python3 - <<'EOF'
import os
os.umask(0)
{0}
EOF"""
MAKING = (
    "cp /bin/sh shell && chmod u+s shell",
    "cp /bin/sh shell && chmod g+s shell",
    "install -m 4755 /bin/sh shell",
    MAKE.format("os.close(os.open('shell', os.O_CREAT | os.O_WRONLY, 0o4755))"),
    MAKE.format("os.mknod('shell', 0o104755)"),
    MAKE.format("d = os.open('.', os.O_RDONLY); os.mknod('shell', 0o102755, dir_fd=d)"),
    MAKE.format(
        "fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o4755); os.link(f'/proc/self/fd/{fd}', 'shell')"
    ),
    MAKE.format("fd = os.open('shell', os.O_CREAT | os.O_WRONLY, 0o755); os.fchmod(fd, 0o6755)"),
)


async def test_a26_no_program_is_left_that_makes_who_runs_it_the_repositorys_owner(
    attacker: Attacker,
) -> None:
    """Another user of this machine would be; what root started on its own repository would make them root."""
    for script in MAKING:
        await attacker.tries(f"rm -f shell; {script}")
        left = attacker.repo / "shell"
        assert not left.exists() or not left.stat().st_mode & BITS, script
    # Inside nobody becomes anybody else by the ones that are there.
    await attacker.fails(
        "su -c true < /dev/null", "sudo -n true", "pkexec true", "newgrp root < /dev/null && false",
        "setcap cap_net_admin+ep shell", "setpriv --reuid=0 --clear-groups true",
    )  # fmt: skip


async def test_a26_a_repository_of_a_group_stays_one(attacker: Attacker) -> None:
    """Git itself sets the bit on directories there (core.sharedRepository)."""
    git = attacker.repo / ".git"
    git.chmod(git.stat().st_mode | stat.S_ISGID)
    code, said = await attacker.tries("mkdir .git/shared && chmod 2775 .git/shared")
    assert code == 0, said
    await attacker.tries("cp /bin/sh shell; chmod u+s shell")
    assert not (attacker.repo / "shell").stat().st_mode & stat.S_ISUID


async def test_a27_nothing_of_the_machine_is_in_reach(attacker: Attacker) -> None:
    await attacker.fails(
        "find / -xdev -type s 2>/dev/null | grep .",
        "find /dev -type b | grep .",
        "ls /dev/kvm || ls /dev/fuse || ls /dev/mem || ls /dev/vsock || ls /dev/vhost-vsock",
        "ls /proc/self/fd | grep -vxE '[0-3]'",
        "find /sys /proc/sys -name release_agent -writable 2>/dev/null | grep .",
        "find /sys /proc/sys -type f -writable 2>/dev/null -exec sh -c 'cat \"$1\" > \"$1\"' sh {} ';' -print | "
        "while read -r name; do (: >> $name) 2>/dev/null && echo $name; done | grep .",
        "echo :x:M::x::/tmp/x: > /proc/sys/fs/binfmt_misc/register",
        "echo /tmp/x > /sys/kernel/uevent_helper",
        "mkdir /sys/fs/cgroup/memory/x",
        "echo 0 > /sys/fs/cgroup/memory/memory.limit_in_bytes",
        "find / -xdev -name '*docker*.sock' 2>/dev/null | grep .",
        "env | grep -E '^(DISPLAY|WAYLAND|DBUS|SSH|GPG|XDG|XAUTH|KRB|SUDO)'",
        "cat /proc/1/environ /proc/*/environ | tr '\\0' '\\n' | grep -E '^(DISPLAY|DBUS|SSH|SLACK|ANTHROPIC)'",
        "renice -n -5 $$",
        "hostname evil",
        "date -s 2001-01-01",
    )


CALL = """python3 - <<'EOF'
import ctypes, platform, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
numbers = {0}
number = numbers[platform.machine()]
sys.exit(0 if libc.syscall(ctypes.c_long(number), *{1}) >= 0 else 1)
EOF"""
SOCKET = "import socket, sys; socket.socket({0})"


async def test_a27_no_call_leads_around_the_namespaces(attacker: Attacker) -> None:
    families = ("40, 1", "38, 5", "17, 3", "31, 3", "44, 3", "16, 3, 9", "16, 3, 6", "21, 5", "29, 3")
    calls = {
        "io_uring_setup": ({"x86_64": 425, "aarch64": 425}, "(8, ctypes.create_string_buffer(120))"),
        "userfaultfd": ({"x86_64": 323, "aarch64": 282}, "(1,)"),
        "keyctl": ({"x86_64": 250, "aarch64": 219}, "(0, -3, 0)"),
        "unshare": ({"x86_64": 272, "aarch64": 97}, "(0x10000000,)"),
        "personality": ({"x86_64": 135, "aarch64": 92}, "(0x0040000,)"),
        "process_vm_readv": ({"x86_64": 310, "aarch64": 270}, "(1, 0, 0, 0, 0, 0)"),
        "clone": ({"x86_64": 56, "aarch64": 220}, "(0x10000011, 0, 0, 0, 0)"),
    }
    await attacker.fails(*(f"python3 -c '{SOCKET.format(family)}'" for family in families))
    await attacker.fails(*(CALL.format(numbers, words) for numbers, words in calls.values()))
    code, said = await attacker.tries("python3 -c 'import socket; socket.socket(1, 1); socket.socket(2, 1)'")
    assert code == 0, said


async def test_a28_what_opens_the_repository_outside_waits_for_nothing(
    attacker: Attacker, base: Path
) -> None:
    """Pipes, devices' names, holes of terabytes and names that are no names, wherever we look."""
    script = """
        for name in README.md AGENTS.md CLAUDE.md Makefile .env .mcp.json; do
            rm -f $name; mkfifo $name; done
        truncate -s 4T hole; truncate -s 4T .git/ORIG_HEAD
        printf x > "$(printf 'a\\nb\\033[2J<!channel>\\342\\200\\256')"; mkdir -p "$(printf 'd\\n/e')"
        mkfifo .codebutler/files/pipe; truncate -s 4T .codebutler/files/hole
        ln -s /dev/zero zero; ln -s . loop; mkdir deep; cd deep
        for i in $(seq 200); do mkdir d && cd d || break; done
    """
    await attacker.tries(script)
    if isinstance(attacker.sandbox, DockerSandbox):
        give_away(attacker.repo)
    tree = Tree(Git(attacker.sandbox, attacker.repo, attacker.home))
    async with asyncio.timeout(120):
        await tree.snapshot("t1/before")
        await tree.difference()
        code, said = await attacker.tries("true")
    assert code == 0, said
    assert not any(path.name == "owned" for path in base.iterdir())
    assert os.path.lexists(attacker.repo / "loop")

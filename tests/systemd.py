"""A real ``systemd --user`` in namespaces of its own, where systemd is not the machine's first process.

It needs root and systemd's programs; commands are run inside with ``nsenter``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.commands import output_of
from tests.programs import require

DEADLINE_S = 20.0
RUNTIME = "/run/user/0"
# A control group of its own: systemd takes the one it is in for the root of its tree.
SCRIPT = f"""
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system {RUNTIME}
chmod 700 {RUNTIME}
for tree in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
  [ -e $tree/cgroup.procs ] && mkdir -p $tree/$0 && echo $$ > $tree/$0/cgroup.procs
done
# Not by exec: as the first process it would take itself for the system's.
/lib/systemd/systemd --user --log-target=console &
wait
"""


class SystemdUser:
    """A user's service manager at work. ``prefix`` and ``env`` put a command where it is."""

    def __init__(self, pid: int, env: dict[str, str]) -> None:
        self.prefix = ("nsenter", "--target", str(pid), "--mount", "--pid", "--")
        self.env = env

    async def run(self, *argv: str, check: bool = True) -> str:
        """What a command prints."""
        return (await output_of(*self.prefix, *argv, env=self.env, check=check)).strip()

    async def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return await self.run("systemctl", "--user", "show", unit, "-p", name, "--value")

    async def until(self, unit: str, name: str, *wanted: str) -> str:
        """Wait until a unit's property is one of ``wanted``; each look is a process, so no loop is busy."""
        found = ""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while (found := await self.show(unit, name)) not in wanted:
                    continue
        except TimeoutError:
            raise AssertionError(f"{name} of {unit} is {found}, never {wanted}") from None
        return found


def require_systemd() -> Path:
    """systemd; else a skip, or under CI=true a failure."""
    for program in ("systemctl", "systemd-analyze", "unshare", "nsenter"):
        require(program)
    return Path("/lib/systemd/systemd")


@asynccontextmanager
async def systemd_user(home: Path) -> AsyncIterator[SystemdUser]:
    """A manager for a user whose home is ``home``; all it runs ends with it."""
    require_systemd()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "USER": "root",
        "LANG": "C.UTF-8",
        "XDG_RUNTIME_DIR": RUNTIME,
    }
    group = f"codebutler-test-{os.getpid()}"
    with (home / "systemd.out").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "bash",
                "-c",
                SCRIPT,
                group,
            ),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        manager = SystemdUser(await _child(process.pid), env)
        async with asyncio.timeout(DEADLINE_S):
            while await manager.run("systemctl", "--user", "is-system-running", check=False) != "running":
                assert process.returncode is None, (home / "systemd.out").read_text()
        yield manager
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
        await _remove_groups(group)


async def _child(pid: int) -> int:
    """The first process of the new namespace."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    async with asyncio.timeout(DEADLINE_S):
        while not (found := await asyncio.to_thread(children.read_text)):
            continue
    return int(found.split()[0])


async def _remove_groups(name: str) -> None:
    """Once what was in them has ended."""
    for tree in ("systemd", "unified", "."):
        top = Path("/sys/fs/cgroup") / tree / name
        async with asyncio.timeout(DEADLINE_S):
            while top.exists():
                await asyncio.to_thread(_remove, top)


def _remove(top: Path) -> None:
    for directory, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            Path(directory).rmdir()

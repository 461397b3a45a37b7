"""Trial: a shell behind the walls, which tries them before anything else starts there."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from codebutler.config.git_repo import ORDINARY_ID, RUN_AS_USER
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.port import Launch

TRIAL_S = 20.0
OPEN = "/tmp"  # noqa: S108 - a private directory is made in it
ALONE = (
    "CodeButler runs as root where there is no other user (a container without user ids of its own?), "
    f"and no agent runs as root: {RUN_AS_USER}"
)
PASSED = "written"
"""All that the shell says where the walls hold."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where the shell works, a file outside that it must not reach, and a home that is not there."""

    workdir: Path
    outside: Path
    home: Path


@contextmanager
def ground() -> Iterator[Ground]:
    """In this block there is one, of an ordinary user's if we are root: the kernel may let only root build walls."""
    root = os.geteuid() == 0
    # Root's own place for temporary files may be out of everybody else's reach.
    with tempfile.TemporaryDirectory(prefix="codebutler-self-test-", dir=OPEN if root else None) as directory:
        base = Path(directory).resolve()
        found = Ground(base / "work", base / "outside", base / "home")
        found.workdir.mkdir()
        if root:
            base.chmod(0o711)
            _give_away(found.workdir)
        found.outside.write_text("outside\n", encoding="utf-8")
        yield found


def _give_away(workdir: Path) -> None:
    try:
        os.chown(workdir, ORDINARY_ID, ORDINARY_ID)
    except OSError as error:  # EINVAL: a user namespace that maps nobody else
        raise SandboxUnavailableError(ALONE) from error


async def failure(launch: Launch) -> str:
    """Why the shell did not pass, in one line; "" if it did."""
    code, output = await _run(launch)
    said = output.strip()
    if code == 0 and said == PASSED:
        return ""
    return said.splitlines()[-1] if said else f"exit code {code}"


async def _run(launch: Launch) -> tuple[int, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=launch.cwd,
            env=launch.env,
        )
    except OSError as error:
        return 126, str(error)
    try:
        async with asyncio.timeout(TRIAL_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return 124, f"nothing happened for {TRIAL_S:g} s"
    return process.returncode or 0, output.decode(errors="replace")

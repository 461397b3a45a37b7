"""A directory on a small disk of its own, which can be filled and made read-only: a tmpfs in a namespace."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

# The old content moves in; the disk lives until our standard input ends.
SETUP = """
mkdir "$1.kept" && cp -a "$1/." "$1.kept/"
mount -t tmpfs -o "size=$2,mode=0700" none "$1"
cp -a "$1.kept/." "$1/"
echo ready
read -r _ || true
"""


class SmallDisk:
    """Only programs started with ``prefix`` see it in the directory's place; we see it through ``inside``."""

    def __init__(self, directory: Path, holder: int) -> None:
        user = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
        self._enter = ("nsenter", "--target", str(holder), *user, "--mount", "--")
        # Only root mounts; what is tried there is who we are.
        ourselves = ("unshare", "--user", f"--map-user={os.geteuid()}", f"--map-group={os.getegid()}", "--")
        self.prefix = (*self._enter, *(ourselves if user else ()))
        self.inside = Path(f"/proc/{holder}/root{directory}")
        self._directory = directory
        self._filler = self.inside / "filler"

    def fill(self) -> None:
        """Until not one more byte fits."""
        with self._filler.open("ab", buffering=0) as file:
            for chunk in (2**16, 1):
                try:
                    while True:
                        file.write(bytes(chunk))
                except OSError:
                    continue

    def free(self) -> None:
        self._filler.unlink()

    async def remount(self, how: str) -> None:
        """``how``: ro or rw."""
        process = await asyncio.create_subprocess_exec(
            *self._enter, "mount", "-o", f"remount,bind,{how}", str(self._directory)
        )
        assert await process.wait() == 0


@asynccontextmanager
async def small_disk(directory: Path, size: str) -> AsyncIterator[SmallDisk]:
    """Skips where the system lets nobody make namespaces; under CI=true that is a failure."""
    # Root needs no powers that a namespace gives, and there it would lack those over what is others'.
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    holder = await asyncio.create_subprocess_exec(
        *("unshare", *user, "--mount", "sh", "-euc", SETUP, "sh", str(directory), size),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stderr is not None
    try:
        if await holder.stdout.readline() != b"ready\n":
            reason = f"no disk of our own: {(await holder.stderr.read()).decode().strip()}"
            pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
        yield SmallDisk(directory, holder.pid)
    finally:
        holder.stdin.close()
        await holder.wait()

"""Programs behind any walls, for tests: the launch as the product executes it, and what is left afterwards."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codebutler_worker.sandbox.port import Launch, Sandbox, SandboxPolicy


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that every user may walk to, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="codebutler-test-", dir="/var/tmp") as name:
        directory = Path(name).resolve()
        directory.chmod(0o755)
        yield directory


async def execute(launch: Launch, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    """Run a launch to its end: exit code, stdout, stderr."""
    enclosure, argv = await launch.enclose(launch.argv) if launch.enclose else (None, launch.argv)
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=launch.cwd,
        env=launch.env,
    )
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    if enclosure is not None:
        await enclosure.close()
    return process.returncode, out, err


async def attack(sandbox: Sandbox, policy: SandboxPolicy, script: str) -> tuple[int, str]:
    """Runs the script inside; its exit code and all it said."""
    code, out, err = await execute(sandbox.wrap(("sh", "-c", script), policy))
    return code, (out + err).decode(errors="replace")

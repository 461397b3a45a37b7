"""Commands, run to their end."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from pathlib import Path

DEADLINE_S = 45.0


async def output_of(
    *argv: str,
    env: Mapping[str, str],
    check: bool = True,
    deadline_s: float = DEADLINE_S,
    typed: str = "",
    cwd: Path | None = None,
) -> str:
    """All that a command says; with ``check`` it has to succeed. ``typed``: what comes on its stdin."""
    source = subprocess.PIPE if typed else subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *argv, env=env, cwd=cwd, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(deadline_s):
        output, _ = await process.communicate(typed.encode() or None)
    text = output.decode()
    assert not check or process.returncode == 0, f"{' '.join(argv)}: {text}"
    return text

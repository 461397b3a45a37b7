"""Commands, run to their end."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping

DEADLINE_S = 45.0


async def output_of(
    *argv: str, env: Mapping[str, str], check: bool = True, deadline_s: float = DEADLINE_S
) -> str:
    """All that a command says; with ``check`` it has to succeed."""
    process = await asyncio.create_subprocess_exec(
        *argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(deadline_s):
        output, _ = await process.communicate()
    text = output.decode()
    assert not check or process.returncode == 0, f"{' '.join(argv)}: {text}"
    return text

"""Commands, run to their end."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import warm

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
    code, text = await ended(*argv, env=env, deadline_s=deadline_s, typed=typed, cwd=cwd)
    assert not check or code == 0, f"{' '.join(argv)}: {text}"
    return text


async def ended(
    *argv: str,
    env: Mapping[str, str],
    deadline_s: float = DEADLINE_S,
    typed: str = "",
    cwd: Path | None = None,
) -> tuple[int, str]:
    """A command's exit code and all that it says."""
    if not typed and warm.is_for_us(argv, env):
        return await _warm_output(argv, env, deadline_s, cwd)
    source = subprocess.PIPE if typed else subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *argv, env=env, cwd=cwd, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(deadline_s):
        output, _ = await process.communicate(typed.encode() or None)
    assert process.returncode is not None
    return process.returncode, output.decode()


async def _warm_output(
    argv: Sequence[str], env: Mapping[str, str], deadline_s: float, cwd: Path | None
) -> tuple[int, str]:
    ours, theirs = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", buffering=0)
    )
    try:
        try:
            process = await warm.start(argv, env=env, output=theirs, cwd=cwd)
        finally:
            os.close(theirs)
        async with asyncio.timeout(deadline_s):
            output = await reader.read()
            return await process.wait(), output.decode()
    finally:
        transport.close()

"""What a worker would find: asked of the worker's own code, in a process with a worker's environment."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from codebutler.config.paths import Home
from codebutler.config.schema import RepoSettings, SlackSection
from codebutler.protocol.messages import Finding, fail
from codebutler.supervisor.forkserver import scrubbed

# The parent never imports the worker.
CHECKUP = "codebutler_worker.checkup"
# Its longest part, a live turn, has a limit of its own.
SILENCE_S = 180.0
MAX_LINE_BYTES = 2**20


def groups(settings: Sequence[RepoSettings]) -> list[tuple[RepoSettings, ...]]:
    """Repositories whose agents would find the same, together: only the first of each need be asked about
    walls and agents."""
    found: dict[bytes, list[RepoSettings]] = {}
    for each in settings:
        config = msgspec.structs.replace(each.config, slack=SlackSection())
        key = msgspec.json.encode((config, each.agent_env))
        found.setdefault(key, []).append(each)
    return [tuple(group) for group in found.values()]


async def check_worker(
    group: Sequence[RepoSettings], home: Home, env: Mapping[str, str], *, live: bool
) -> AsyncIterator[Finding]:
    """The findings of one group of repositories, as they come."""
    names = ", ".join(each.name for each in group)
    checkup = {"group": msgspec.to_builtins(tuple(group)), "state": str(home.root), "live": live}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-X", "utf8", "-m", CHECKUP),
        env=scrubbed(dict(env)),
        cwd=home.root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        limit=MAX_LINE_BYTES,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.create_task(process.stderr.read(), name="checkup-stderr")
    try:
        process.stdin.write(json.dumps(checkup).encode())
        with contextlib.suppress(ConnectionError):
            await process.stdin.drain()
        process.stdin.close()
        async with asyncio.timeout(SILENCE_S):
            async for line in process.stdout:
                yield msgspec.json.decode(line, type=Finding)
        if await process.wait():
            last = (await errors).decode(errors="replace").strip().splitlines()[-1:]
            yield fail("worker", names, f"the check failed: {' '.join(last)[:300]}")
    except TimeoutError:
        yield fail("worker", names, f"the check did not end within {SILENCE_S:g} s")
    except msgspec.DecodeError as error:
        yield fail("worker", names, f"the check printed something unexpected: {error}")
    finally:
        errors.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

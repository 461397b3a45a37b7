"""The docker client, asked one thing at a time."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from pathlib import Path

from codebutler.errors import SandboxUnavailableError
from codebutler.runner import RUNNER

CLIENT_S = 60.0
MISSING = f"the image {RUNNER} is missing: run `codebutler sandbox build`"


@dataclass(frozen=True, slots=True)
class Docker:
    """The docker client, as arguments: ``host`` is the daemon's address. No configuration of the user's is read."""

    program: Path
    host: str

    @property
    def argv(self) -> tuple[str, ...]:
        """What every call of the client begins with."""
        return (str(self.program), "--config", "/var/empty/codebutler", "--host", self.host)

    async def run(self, *words: str, env: dict[str, str] | None = None) -> str:
        """What a command of the client printed. ``env`` is the client's own environment.

        Raises SandboxUnavailableError with docker's own words.
        """
        process = await asyncio.create_subprocess_exec(
            *self.argv, *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd="/", env=env or {}
        )
        try:
            async with asyncio.timeout(CLIENT_S):
                out, err = await process.communicate()
        except TimeoutError:
            raise SandboxUnavailableError(f"docker {words[0]} took longer than {CLIENT_S:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise SandboxUnavailableError(_why(err.decode(errors="replace"), process.returncode or 0))
        return out.decode(errors="replace").strip()


def _why(stderr: str, code: int) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not line.startswith("See ")]
    said = lines[0].removeprefix("docker: ").removeprefix("Error response from daemon: ") if lines else ""
    if "No such image" in said or "Unable to find image" in said:
        return MISSING
    return f"docker does not work here: {said[:300].rstrip('.?') or f'exit code {code}'}"

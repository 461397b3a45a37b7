"""Is there a Kimi Code we can work with? Asked once per worker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from codebutler.errors import AgentUnavailableError
from codebutler_worker.agents.acp.programs import Program
from codebutler_worker.agents.acp.versions import INSTALL, PACKAGE, judge, judge_node
from codebutler_worker.programs.process import AgentProcess
from codebutler_worker.sandbox.person import as_owner
from codebutler_worker.sandbox.port import Launch

PROBE_S = 30.0
SAID_BYTES = 4_000


class Package(msgspec.Struct):
    """What matters of a ``package.json``."""

    name: str = ""
    version: str = ""


async def probe(program: Program, env: dict[str, str], repo: Path) -> str:
    """Whether it can be used; returns a note for the log. Raises as ``ask_version``."""
    return judge(await ask_version(program, env, repo))


async def ask_version(program: Program, env: dict[str, str], repo: Path) -> str:
    """What the program is, by its package or by its own words to whom ``repo`` belongs.

    Raises AgentUnavailableError if it says nothing, or if its Node is too old, and SandboxUnavailableError if root
    cannot let it run as an ordinary user.
    """
    before = as_owner(repo, *map(Path, program.argv))
    if Path(program.argv[0]).name == "node":
        judge_node(await _said((*before, program.argv[0], "--version"), env))
    # Only to say its version it takes more than a second.
    return packaged(Path(program.argv[-1])) or await _said((*before, *program.argv, "--version"), env)


def packaged(binary: Path) -> str:
    """The version of the npm package that the program lies in, "" if it is another's or none."""
    for directory in binary.parents[:3]:
        try:
            found = msgspec.json.decode((directory / "package.json").read_bytes(), type=Package)
        except (OSError, msgspec.DecodeError):
            continue
        return found.version if found.name == PACKAGE else ""
    return ""


async def _said(argv: tuple[str, ...], env: dict[str, str]) -> str:
    said = b""
    secretless = {key: value for key, value in env.items() if "KEY" not in key}
    async with await AgentProcess.spawn(Launch(argv, secretless, Path("/"))) as process:
        try:
            async with asyncio.timeout(PROBE_S):
                async for line in process.lines():
                    said += line[: SAID_BYTES - len(said)] + b"\n"
        except TimeoutError:
            raise AgentUnavailableError(
                f"`{Path(argv[-2]).name} --version` does not answer: install Kimi Code anew with `{INSTALL}`"
            ) from None
    return said.decode(errors="replace")

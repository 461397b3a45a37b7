"""Is there a Claude Code we can work with? Asked once per worker."""

from __future__ import annotations

import asyncio
from pathlib import Path

from codebutler.errors import AgentUnavailableError
from codebutler.process.lookup import CLAUDE_CODE, look_up
from codebutler_worker.agents.versions import Known, Version, version_in
from codebutler_worker.programs.process import AgentProcess
from codebutler_worker.sandbox.person import as_owner
from codebutler_worker.sandbox.port import Launch

FLOOR = (2, 1, 197)
TESTED = (2, 1, 328)
INSTALL = CLAUDE_CODE.install
PROBE_S = 20.0

KNOWN = Known(CLAUDE_CODE.title, FLOOR, TESTED, INSTALL)


def judge_version(version: Version | None) -> str:
    """A note for the log, empty if all is well. Raises AgentUnavailableError below the floor."""
    if version is None:
        raise AgentUnavailableError(f"claude does not tell its version: install it with `{INSTALL}`")
    return KNOWN.judge(version)


def find_binary(binary: str, path: str, repo: Path, home: Path) -> Path:
    """The program itself, links resolved. Raises AgentUnavailableError with what to do. ``home`` is the user's.

    Relative entries of ``path`` do not count, and what lies in ``repo`` is refused: it is asked for its version
    outside any sandbox, and an agent may have written it.
    """
    found = look_up(binary, path)
    if found is None:
        raise CLAUDE_CODE.missing(binary, home)
    program = found.resolve()
    if any(place.is_relative_to(repo) for place in (program, found)):
        raise AgentUnavailableError(
            f"{found} lies in the repository, where agents may write: install Claude Code elsewhere"
        )
    return program


async def probe(binary: Path, env: dict[str, str], repo: Path) -> str:
    """Run ``--version``; returns judge_version's note. Raises AgentUnavailableError."""
    return judge_version(await ask_version(binary, env, repo))


async def ask_version(binary: Path, env: dict[str, str], repo: Path) -> Version | None:
    """What ``--version`` says to whom ``repo`` belongs, None if that is no version.

    Raises AgentUnavailableError, and SandboxUnavailableError if root cannot let it run as an ordinary user.
    """
    launch = Launch((*as_owner(repo, binary), str(binary), "--version"), env, Path("/"))
    said = b""
    async with await AgentProcess.spawn(launch) as process:
        try:
            async with asyncio.timeout(PROBE_S):
                async for line in process.lines():
                    said += line
        except TimeoutError:
            raise AgentUnavailableError("`claude --version` does not answer: reinstall Claude Code") from None
    return version_in(said.decode(errors="replace"))

"""Git on a repository in which agents write: always inside the sandbox, never the host's.

A repository's configuration, attributes and filters can make git run programs. Inside, they may do what an agent
may do anyway.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from codebutler.errors import AgentUnavailableError, CodeButlerError
from codebutler_worker.programs.process import AgentProcess
from codebutler_worker.sandbox.destinations import UnsafePathError, status_beneath
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy
from codebutler_worker.tree.scripts import CONFIG, ENV, NO_REPOSITORY, OURS

LIMIT_BYTES = 8 * 2**20
LIMIT_S = 60.0
NOT_GIT = "this directory is not a git repository: run `git init` in it"


class GitError(CodeButlerError):
    """Git could not answer; one line that says why."""


class GitSlowError(GitError):
    """Git did not answer in time."""


@dataclass(frozen=True, slots=True)
class Said:
    """The standard output of a script; ``cut``: there was more."""

    output: bytes
    cut: bool = False


class Git:
    """Runs shell scripts of git commands in ``workdir``; ``home`` is where the sandbox's HOME is; ``filling``: see
    SandboxPolicy."""

    def __init__(self, sandbox: Sandbox, workdir: Path, home: Path, *, filling: bool = False) -> None:
        self._sandbox = sandbox
        self.workdir = workdir
        self._policy = SandboxPolicy(
            workdir=workdir, home=home, env={**environment(), **OURS}, network="none", filling=filling
        )

    def has_repository(self) -> bool:
        """Whether there is a git directory at all; starts nothing."""
        try:
            return status_beneath(self.workdir, ".git") is not None
        except UnsafePathError:
            return True  # something is there: the sandbox says what is wrong with it
        except OSError:
            return False

    async def run(
        self, script: str, *arguments: str, limit_bytes: int = LIMIT_BYTES, limit_s: float = LIMIT_S
    ) -> Said:
        """Run ``script``; returns what it printed, ``limit_bytes`` at most.

        Raises GitError for any failure, and SandboxUnavailableError.
        """
        if not self.has_repository():
            raise GitError(NOT_GIT)
        launch = self._sandbox.wrap(("/bin/sh", "-c", script, "git", *arguments), self._policy)
        try:
            async with asyncio.timeout(limit_s), await AgentProcess.spawn(launch) as process:
                return await _listen(process, limit_bytes)
        except TimeoutError:
            raise GitSlowError(f"git took longer than {limit_s:g} s") from None
        except AgentUnavailableError as error:
            raise GitError(str(error)) from error


async def _listen(process: AgentProcess, limit_bytes: int) -> Said:
    process.close_stdin()
    lines: list[bytes] = []
    size = 0
    async for line in process.lines():
        size += len(line) + 1
        lines.append(line)
        if size > limit_bytes:
            return Said(b"\n".join(lines)[:limit_bytes], cut=True)
    code = await process.wait()
    if code != 0:
        raise GitError(_why(code, process.limit_hit or process.stderr_tail))
    return Said(b"\n".join(lines))


def _why(code: int, stderr: str) -> str:
    if code == NO_REPOSITORY:
        return NOT_GIT
    if code == 127:
        return "git is not installed on this machine: install it"
    lines = [line for line in stderr.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"git ended with exit code {code}"


def environment() -> dict[str, str]:
    """The environment of every git here: nothing of ours, and a configuration that runs nothing."""
    env = {**ENV, "GIT_CONFIG_COUNT": str(len(CONFIG))}
    for at, (key, value) in enumerate(CONFIG):
        env |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return env

"""Programs in the sandbox, for tools: without network unless requested; each runs to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codebutler.domain.errors import AgentUnavailableError
from codebutler_worker.egress.hosts import HostPort
from codebutler_worker.egress.policy import NetworkPolicy
from codebutler_worker.programs.process import run_to_end
from codebutler_worker.programs.program import UNATTENDED
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy
from codebutler_worker.tools.outcome import ToolError
from codebutler_worker.tree.tree import environment

TIMED_OUT = 124
"""timeout(1)'s exit code."""
MERGED = ("/bin/sh", "-c", 'exec "$@" 2>&1', "tool")
PASSED_ON = frozenset({"LC_ALL", "TZ"})


def tool_policy(
    workdir: Path, home: Path, path: str, agent_env: Mapping[str, str], conversation: str
) -> SandboxPolicy:
    """What a tool's program may see: the checkout and the system. No keys and no other variables; network access, if
    any, is added when the program starts."""
    passed = {name: value for name, value in agent_env.items() if name in PASSED_ON}
    env = {**environment(), **UNATTENDED, "PATH": path, "TERM": "dumb", **passed}
    return SandboxPolicy(workdir=workdir, home=home, env=env, network="none", conversation=conversation)


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """A program that has ended: its output (stdout and stderr mixed) and exit code. ``note`` is one line about a limit
    it reached, "" if none."""

    data: bytes
    exit_code: int
    truncated: bool = False
    note: str = ""

    @property
    def output(self) -> str:
        """The output decoded as UTF-8, replacing what is not."""
        return self.data.decode(errors="replace")


class SandboxPrograms:
    """Starts programs in one working directory. ``network_policy``: for those that need network, None = none;
    ``refused``: hosts that they asked for and may not reach; ``container``: the last program's, "" if none."""

    def __init__(
        self, sandbox: Sandbox, policy: SandboxPolicy, network_policy: NetworkPolicy | None = None
    ) -> None:
        self.refused: list[HostPort] = []
        self.container = ""
        self._sandbox = sandbox
        self._policy = policy
        self._closed = NetworkPolicy("none")
        self._network_policy = network_policy or self._closed

    async def run(
        self,
        argv: tuple[str, ...],
        *,
        stdin: bytes = b"",
        limit_bytes: int = 65_536,
        limit_s: float = 60.0,
        network: bool = False,
    ) -> ProgramOutput:
        """Run a program. After ``limit_s`` it is ended with exit code 124; a newline is added to ``stdin``. Raises
        ToolError if it cannot be started."""
        if any("\0" in word for word in argv):
            raise ToolError("an argument must not contain a NUL byte")
        network_policy = self._network_policy if network else self._closed
        async with await network_policy.open(self._policy.workdir) as access:
            launch = self._sandbox.wrap((*MERGED, *argv), access.through(self._policy))
            try:
                ended = await run_to_end(launch, stdin=stdin, limit_bytes=limit_bytes, limit_s=limit_s)
            except AgentUnavailableError as error:
                raise ToolError(str(error)) from error
            finally:
                self.refused += access.refused
        self.container = ended.container
        if ended.code is None:
            return ProgramOutput(ended.output, TIMED_OUT, note=f"it was stopped after {limit_s:g} s")
        full = "it wrote too much, and was stopped" if ended.cut else ""
        return ProgramOutput(ended.output, ended.code, ended.cut, ended.limit_hit or full)

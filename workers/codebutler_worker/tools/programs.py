"""Programs behind the walls, for tools: started through the sandbox, without network unless it is asked for, ended
with everything they started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from codebutler.domain.errors import AgentUnavailableError
from codebutler_worker.egress.hosts import Place
from codebutler_worker.egress.outlet import Outlet
from codebutler_worker.programs.process import AgentProcess
from codebutler_worker.programs.program import UNATTENDED
from codebutler_worker.sandbox.port import Launch, Sandbox, SandboxPolicy
from codebutler_worker.tools.port import Programs, Ran, ToolError
from codebutler_worker.tree.tree import environment

TIMED_OUT = 124
"""As timeout(1) says it."""
MERGED = ("/bin/sh", "-c", 'exec "$@" 2>&1', "tool")
PASSED_ON = frozenset({"LC_ALL", "TZ"})


def tool_policy(
    workdir: Path, home: Path, path: str, agent_env: Mapping[str, str], conversation: str
) -> SandboxPolicy:
    """What a tool's program may see: the checkout and the system. No key, no other variable; the network, if there is
    one, is added as the program starts."""
    passed = {name: value for name, value in agent_env.items() if name in PASSED_ON}
    env = {**environment(), **UNATTENDED, "PATH": path, "TERM": "dumb", **passed}
    return SandboxPolicy(workdir=workdir, home=home, env=env, network="none", conversation=conversation)


class SandboxPrograms:
    """The tools' Programs in one working directory. ``outlet`` is the way out for those with network, None = none;
    ``refused``: what they asked for and may not reach."""

    def __init__(self, sandbox: Sandbox, policy: SandboxPolicy, outlet: Outlet | None = None) -> None:
        self.refused: list[Place] = []
        self._sandbox = sandbox
        self._policy = policy
        self._outlet = outlet or Outlet("none")
        self._closed = Outlet("none")

    async def run(
        self,
        argv: tuple[str, ...],
        *,
        stdin: bytes = b"",
        limit_bytes: int = 65_536,
        limit_s: float = 60.0,
        network: bool = False,
    ) -> Ran:
        """Run it and listen; a newline is added to ``stdin``. Raises ToolError if it cannot be started."""
        if any("\0" in word for word in argv):
            raise ToolError("no argument can hold a zero byte")
        outlet = self._outlet if network else self._closed
        async with await outlet.open(self._policy.workdir) as way:
            launch = self._sandbox.wrap((*MERGED, *argv), way.through(self._policy))
            try:
                return await _listened(launch, stdin, limit_bytes, limit_s)
            finally:
                self.refused += way.refused


async def _listened(launch: Launch, stdin: bytes, limit_bytes: int, limit_s: float) -> Ran:
    kept = _Kept(limit_bytes)
    try:
        async with await AgentProcess.spawn(launch) as process:
            container = process.container
            try:
                async with asyncio.timeout(limit_s):
                    if stdin:
                        await process.write_line(stdin)
                    process.close_stdin()
                    await kept.listen(process)
                    # What closed its output may still be at work.
                    code = TIMED_OUT if kept.full else await process.wait()
                note = process.limit_hit
            except TimeoutError:
                code, note = TIMED_OUT, f"it was ended after {limit_s:g} s"
    except AgentUnavailableError as error:
        raise ToolError(str(error)) from error
    if kept.full:
        code, note = 0, note or "it wrote more than is kept, and was ended"
    return Ran(kept.data, code, truncated=kept.full, note=note, container=container)


class NotingPrograms:
    """Programs through others, noting the container of the last one."""

    def __init__(self, inner: Programs) -> None:
        self.container = ""
        self._inner = inner

    async def run(
        self,
        argv: tuple[str, ...],
        *,
        stdin: bytes = b"",
        limit_bytes: int = 65_536,
        limit_s: float = 60.0,
        network: bool = False,
    ) -> Ran:
        """See the port."""
        ran = await self._inner.run(
            argv, stdin=stdin, limit_bytes=limit_bytes, limit_s=limit_s, network=network
        )
        self.container = ran.container
        return ran


class _Kept:
    """The beginning of what a program writes."""

    def __init__(self, limit_bytes: int) -> None:
        self.full = False
        self._limit_bytes = limit_bytes
        self._lines: list[bytes] = []
        self._size = 0

    async def listen(self, process: AgentProcess) -> None:
        async for line in process.lines():
            self._lines.append(line[: self._limit_bytes - self._size])
            self._size += len(line) + 1
            if self._size > self._limit_bytes:
                self.full = True
                return

    @property
    def data(self) -> bytes:
        return b"\n".join(self._lines)

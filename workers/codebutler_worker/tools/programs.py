"""Programs behind the walls, for tools: started through the sandbox, without network, ended with everything they
started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from codebutler.errors import AgentUnavailableError
from codebutler_worker.programs.process import AgentProcess
from codebutler_worker.programs.program import UNATTENDED
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy
from codebutler_worker.tools.port import Programs, Ran, ToolError
from codebutler_worker.tree.git import environment

TIMED_OUT = 124
"""As timeout(1) says it."""
MERGED = ("/bin/sh", "-c", 'exec "$@" 2>&1', "tool")
PASSED_ON = frozenset({"LC_ALL", "TZ"})


def tool_policy(
    workdir: Path, home: Path, path: str, agent_env: Mapping[str, str], conversation: str
) -> SandboxPolicy:
    """What a tool's program may see: the checkout and the system. No key, no network, no other variable."""
    passed = {name: value for name, value in agent_env.items() if name in PASSED_ON}
    env = {**environment(), **UNATTENDED, "PATH": path, "TERM": "dumb", **passed}
    return SandboxPolicy(workdir=workdir, home=home, env=env, network="none", conversation=conversation)


class SandboxPrograms:
    """The tools' Programs in one working directory."""

    def __init__(self, sandbox: Sandbox, policy: SandboxPolicy) -> None:
        self._sandbox = sandbox
        self._policy = policy

    async def run(
        self, argv: tuple[str, ...], *, stdin: bytes = b"", limit_bytes: int = 65_536, limit_s: float = 60.0
    ) -> Ran:
        """Run it and listen; a newline is added to ``stdin``. Raises ToolError if it cannot be started."""
        if any("\0" in word for word in argv):
            raise ToolError("no argument can hold a zero byte")
        launch = self._sandbox.wrap((*MERGED, *argv), self._policy)
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
        self, argv: tuple[str, ...], *, stdin: bytes = b"", limit_bytes: int = 65_536, limit_s: float = 60.0
    ) -> Ran:
        """See the port."""
        ran = await self._inner.run(argv, stdin=stdin, limit_bytes=limit_bytes, limit_s=limit_s)
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

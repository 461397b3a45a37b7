"""Does the way out work here? Tried with a program that does nothing."""

from __future__ import annotations

import asyncio

from codebutler.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler_worker.egress.outlet import Outlet
from codebutler_worker.programs.process import AgentProcess
from codebutler_worker.sandbox import trial
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy

TRIAL_S = 20.0
PROGRAM = ("/bin/sh", "-c", "exit 42")


async def try_way_out(sandbox: Sandbox, outlet: Outlet) -> None:
    """Raises SandboxUnavailableError with what to do."""
    with trial.ground() as ground:
        workdir = ground.workdir
        async with await outlet.open(workdir) as way:
            env = {"PATH": "/usr/bin:/bin", **way.env}
            policy = SandboxPolicy(workdir=workdir, home=ground.home, env=env, network=way.network)
            try:
                async with (
                    asyncio.timeout(TRIAL_S),
                    await AgentProcess.spawn(sandbox.wrap(PROGRAM, policy)) as process,
                ):
                    process.close_stdin()
                    code, said = await process.wait(), process.stderr_tail.strip()
            except (AgentUnavailableError, TimeoutError) as error:
                code, said = -1, str(error) or f"nothing happened for {TRIAL_S:g} s"
    if code != 42:
        reason = said.splitlines()[-1] if said else f"exit code {code}"
        raise SandboxUnavailableError(
            f'agents have no way to their model ({reason}): reinstall perl, or set sandbox.network to "open"'
        )

"""NoSandbox: no walls. Only a trusted configuration asks for it."""

from __future__ import annotations

import os
from pathlib import Path

from codebutler_worker.sandbox.person import as_owner
from codebutler_worker.sandbox.port import Launch, SandboxPolicy


class NoSandbox:
    """Runs the program as it is, with the policy's environment, home and working directory; as root, as the owner of
    the working directory. ``uid``: who we are, None = to be found out."""

    name = "none"

    def __init__(self, uid: int | None = None) -> None:
        self._uid = os.geteuid() if uid is None else uid

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """See the port. Raises SandboxUnavailableError where root would have to start it as root."""
        before = as_owner(policy.workdir, policy.workdir, Path(argv[0]), uid=self._uid)
        return Launch(argv=(*before, *argv), env=environment(policy), cwd=policy.workdir)

    async def self_test(self) -> None:
        """There is nothing that could fail."""


def environment(policy: SandboxPolicy) -> dict[str, str]:
    """The program's whole environment: what the policy gives, its HOME, and PWD, which bubblewrap sets too."""
    return {**policy.env, "HOME": str(policy.home), "PWD": str(policy.workdir)}

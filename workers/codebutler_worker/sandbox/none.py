"""NoSandbox: no walls. Only a trusted configuration asks for it."""

from __future__ import annotations

import os
from pathlib import Path

from codebutler.errors import SandboxUnavailableError
from codebutler_worker.sandbox.port import Launch, SandboxPolicy
from codebutler_worker.sandbox.system import find_program
from codebutler_worker.sandbox.whoami import ROOTS_OWN, RUN_AS_USER

# What root gives up for good: its groups, every capability, and whatever would bring them back (sudo, su).
GIVEN_UP = ("--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")


class NoSandbox:
    """Runs the program as it is, with the policy's environment, home and working directory; as root, as the owner of
    the working directory. ``uid``: who we are, None = to be found out."""

    name = "none"

    def __init__(self, uid: int | None = None) -> None:
        self._uid = os.geteuid() if uid is None else uid

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """See the port. Raises SandboxUnavailableError where root would have to start it as root."""
        before = self._before(policy.workdir) if self._uid == 0 else ()
        return Launch(argv=(*before, *argv), env=environment(policy), cwd=policy.workdir)

    async def self_test(self) -> None:
        """There is nothing that could fail."""

    def _before(self, workdir: Path) -> tuple[str, ...]:
        owner = workdir.stat()
        if owner.st_uid == 0:
            raise SandboxUnavailableError(ROOTS_OWN.format(repo=workdir))
        setpriv = find_program("setpriv")
        # BusyBox has another program of that name.
        if setpriv is None or setpriv.resolve().name != "setpriv":
            raise SandboxUnavailableError(
                f"root needs setpriv to start agents as the repository's owner: install util-linux, or {RUN_AS_USER}"
            )
        # Its group may be root's, which is as good as root for some files.
        group = owner.st_gid or owner.st_uid
        return (str(setpriv), f"--reuid={owner.st_uid}", f"--regid={group}", *GIVEN_UP, "--")


def environment(policy: SandboxPolicy) -> dict[str, str]:
    """The program's whole environment: what the policy gives, its HOME, and PWD, which bubblewrap sets too."""
    return {**policy.env, "HOME": str(policy.home), "PWD": str(policy.workdir)}

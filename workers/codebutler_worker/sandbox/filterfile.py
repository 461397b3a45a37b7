"""The filter of system calls where bubblewrap can read it: in memory, sealed, opened anew for each start."""

from __future__ import annotations

import fcntl
import os
import platform
import weakref

from codebutler_worker.sandbox.seccomp import machines, program

FD = 9
"""The descriptor that bubblewrap reads it from. Shells know only those of one digit."""
# With the filter's path as $0: opened before anything of the agent's runs, closed by bubblewrap itself.
OPEN = f'exec "$@" {FD}<"$0"'
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class FilterFile:
    """Lives as long as this object. ``missing``: there is no filter for this machine."""

    def __init__(self, machine: str | None = None) -> None:
        machine = machine or platform.machine()
        self.missing = machine not in machines()
        self.machine = machine
        self._paths: dict[bool, str] = {}

    def before(self, argv: tuple[str, ...], *, shared: bool = False) -> tuple[str, ...]:
        """``argv`` with the filter open as ``FD``; ``shared``: see ``seccomp.program``."""
        return argv if self.missing else ("/bin/sh", "-c", OPEN, self._path(shared=shared), *argv)

    def _path(self, *, shared: bool) -> str:
        if shared not in self._paths:
            fd = os.memfd_create("codebutler-filter", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            weakref.finalize(self, os.close, fd)
            os.write(fd, program(self.machine, shared=shared))
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
            self._paths[shared] = f"/proc/{os.getpid()}/fd/{fd}"
        return self._paths[shared]

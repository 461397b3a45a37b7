"""The filter of system calls where bubblewrap, or docker's client, can read it: in memory, sealed."""

from __future__ import annotations

import fcntl
import os
import platform
import sys
import tempfile
import weakref

from codebutler_worker.sandbox.seccomp import machines, program

FD = 9
"""The descriptor that bubblewrap reads it from. Shells know only those of one digit."""
# With the filter's path as $0: opened before anything of the agent's runs, closed by bubblewrap itself.
OPEN = f'exec "$@" {FD}<"$0"'


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
            self._paths[shared] = kept(self, program(self.machine, shared=shared))
        return self._paths[shared]


class ProfileFile:
    """The same for docker's client. Lives as long as ``owner``, who starts containers later."""

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._paths: dict[bool, str] = {}

    def option(self, *, shared: bool = False) -> str:
        """For `docker run`; ``shared``: see ``seccomp.program``."""
        if shared not in self._paths:
            from codebutler_worker.sandbox.docker_filter import profile  # most workers never need it

            self._paths[shared] = kept(self._owner, profile(shared=shared))
        return f"--security-opt=seccomp={self._paths[shared]}"


def kept(owner: object, content: bytes) -> str:
    """Where ``content`` can be read, and nobody can change it, as long as ``owner`` lives."""
    if sys.platform == "linux":
        fd = os.memfd_create("codebutler-filter", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        weakref.finalize(owner, os.close, fd)
        os.write(fd, content)
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        return f"/proc/{os.getpid()}/fd/{fd}"
    fd, path = tempfile.mkstemp(prefix="codebutler-filter-")
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    weakref.finalize(owner, os.unlink, path)
    return path

"""How many files this process may have open (RLIMIT_NOFILE, getrlimit(2)): raised for itself, not for what it starts.

The usual soft limit of 1,024 is for programs that use select(2). Such programs agents may start, so that workers go
back to the limit that we were given.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from dataclasses import dataclass

# More than any number of repositories needs. A container's hard limit may be a billion.
ENOUGH = 2**16
# macOS refuses more than this to an ordinary process whose hard limit is none (OPEN_MAX).
OPEN_MAX = 10_240
# Of every worker: its socket, what it prints, its process and two pipes of multiprocessing.
PER_WORKER = 5
# For everything else: up to 48 connections to Slack, journal, logs, who asks for the status, and starts under way.
RESERVED = 112
LEAST_WORKERS = 4
# So many must be free before a worker is started: it takes about ten, and other threads open files meanwhile.
FOR_A_START = 24


@dataclass(frozen=True, slots=True)
class Descriptors:
    """``given`` is the soft limit that we were started with, ``now`` the one that holds."""

    given: int
    now: int

    @property
    def workers(self) -> int:
        """How many workers may run at once."""
        return max(LEAST_WORKERS, (self.now - RESERVED) // PER_WORKER)

    def trouble(self, repositories: int) -> str:
        """What a person has to know when so many are served, "" if there is room for all."""
        if repositories <= self.workers:
            return ""
        return (
            f"the limit of open files ({self.now}) allows {self.workers} workers at once for {repositories} "
            "repositories: idle workers sleep early and others wait for them. Raise the hard limit to "
            f"{needed(repositories)} or more (`ulimit -Hn`; in a systemd unit LimitNOFILE) and restart"
        )


def needed(repositories: int) -> int:
    """The limit that has room for a worker of each repository."""
    return RESERVED + PER_WORKER * repositories


def raise_limit() -> Descriptors:
    """Take as many as the hard limit allows, within reason. Where that is refused, all stays as it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_MAX if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return Descriptors(_finite(soft), _finite(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))


def lower_to(soft: int) -> None:
    """Have no more than ``soft`` from now on; the hard limit stays."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def check_free(count: int = FOR_A_START) -> None:
    """Raises OSError (EMFILE, ENFILE) unless so many more files can be opened now."""
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(count))
    finally:
        for descriptor in opened:
            os.close(descriptor)


def is_shortage(error: BaseException) -> bool:
    """Whether the machine had too little of something just then: files, processes, memory."""
    shortages = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
    return isinstance(error, OSError) and error.errno in shortages


def _finite(limit: int) -> int:
    return ENOUGH if limit == resource.RLIM_INFINITY else limit

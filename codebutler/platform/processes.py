"""Our own process: its settings, how many files it may open, the mark of all that it starts, and its restart in place:
the same command, pid and environment, with the code that is installed now.

What a dead process left behind is found by its mark. To a service manager a restarted process stays the same. A
listening socket can be left open for the next run: clients that connect in between wait in its queue.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import resource
import signal
import socket
import sys
import time
from contextlib import suppress

from msgspec import Struct

from codebutler.domain.errors import EXIT_FAILED
from codebutler.platform.system import this_system

HANDOVER_S = 0.0005
LARGE_BYTES = 2**18
ALLOCATOR_VARIABLES = (("MALLOC_MMAP_THRESHOLD_", str(LARGE_BYTES)),)
"""By default, glibc raises the size from which freed memory is returned to the system to 32 MB with the first large
file, and from then on each thread that handles one keeps its memory (mallopt(3), M_MMAP_THRESHOLD). These variables are
for a process that has not started yet. Other C libraries have neither the problem nor the setting."""
_M_MMAP_THRESHOLD = -3
# More than any number of repositories needs. A container's hard limit may be a billion.
ENOUGH = 2**16
# macOS does not allow more than this to an ordinary process without a hard limit (OPEN_MAX).
OPEN_MAX = 10_240
# Per worker: its socket, its output, its process and two pipes of multiprocessing.
PER_WORKER = 5
# For everything else: up to 48 connections to chats, journal, logs, clients of the control socket, and starts in
# progress.
RESERVED = 112
LEAST_WORKERS = 4
# This many must be free before a worker is started: it takes about ten, and other threads open files meanwhile.
FOR_A_START = 24
LISTENER = "CODEBUTLER_LISTENER"
MARK = "CODEBUTLER_SUPERVISOR_ID"
"""Set in the environment of the fork server and everything it starts; agents never see it."""
GONE_S = 2.0


def disable_core_dumps() -> None:
    """For this process and all its children: no core dumps, whatever the session's limits are (core(5))."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def shorten_switch_interval() -> None:
    """Hand over the interpreter to a waiting thread after HANDOVER_S, in the whole process.

    Python's default of 5 ms is for throughput. Here each step of a message goes from the event loop to a store's thread
    and back, and would wait that long whenever the loop is busy.
    """
    sys.setswitchinterval(HANDOVER_S)


def return_large_blocks() -> None:
    """The effect of ``ALLOCATOR_VARIABLES``, for the running process."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


class Descriptors(Struct, frozen=True):
    """How many files this process may have open (RLIMIT_NOFILE, getrlimit(2)): ``given`` is the soft limit that we were
    started with, ``now`` the current one, raised for ourselves, not for our children.

    The usual soft limit of 1,024 is for programs that use select(2). Agents may start such programs, so workers return
    to the limit that we were given.
    """

    given: int
    now: int

    @property
    def workers(self) -> int:
        """How many workers may run at once."""
        return max(LEAST_WORKERS, (self.now - RESERVED) // PER_WORKER)

    def trouble(self, repositories: int) -> str:
        """What people must know if this many are served, "" if there is room for all."""
        if repositories <= self.workers:
            return ""
        return (
            f"the limit of open files ({self.now}) allows {self.workers} workers at once for {repositories} "
            "repositories: idle workers sleep early and others wait for them. Raise the hard limit to "
            f"{needed(repositories)} or more (`ulimit -Hn`; in a systemd unit LimitNOFILE) and restart"
        )


def needed(repositories: int) -> int:
    """The limit that has room for a worker per repository."""
    return RESERVED + PER_WORKER * repositories


def raise_limit() -> Descriptors:
    """Raise the soft limit as far as the hard limit allows, within reason. If that is refused, nothing changes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_MAX if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return Descriptors(_finite(soft), _finite(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))


def lower_to(soft: int) -> None:
    """Lower the soft limit to ``soft``; the hard limit stays."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def check_free(count: int = FOR_A_START) -> None:
    """Raises OSError (EMFILE, ENFILE) unless this many more files can be opened now."""
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(count))
    finally:
        for descriptor in opened:
            os.close(descriptor)


def is_shortage(error: BaseException) -> bool:
    """Whether the machine was short of something at that moment: files, processes, memory."""
    shortages = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
    return isinstance(error, OSError) and error.errno in shortages


def _finite(limit: int) -> int:
    return ENOUGH if limit == resource.RLIM_INFINITY else limit


class Reexec:
    """Create it before anything else is imported: exit handlers that are registered first run last. If ``wanted`` is
    set then, the process restarts instead of ending."""

    def __init__(self) -> None:
        self.wanted = False
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        atexit.register(self._start)

    def _start(self) -> None:
        if not self.wanted:
            return
        # The remaining children are our helpers, which the next run could not wait for.
        for pid in this_system().children(os.getpid()):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        lower_to(self._files)
        try:
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own command
        except OSError as error:
            sys.stderr.write(f"codebutler: cannot start again: {error.strerror}\n")
            sys.stderr.flush()
            os._exit(EXIT_FAILED)  # then a service manager restarts it


def leave_open(listener: socket.socket) -> None:
    """Leave the listening socket to the next run of this process."""
    descriptor = os.dup(listener.fileno())
    os.set_inheritable(descriptor, True)  # noqa: FBT003 - it takes no keyword
    os.environ[LISTENER] = str(descriptor)


def left_open(host: str, ports: range) -> socket.socket | None:
    """The socket that the previous run left open, if it listens at this address; otherwise it is closed."""
    number = os.environ.pop(LISTENER, "")
    if not number.isdigit():
        return None
    try:
        listener = socket.socket(fileno=int(number))
    except OSError:
        return None
    with suppress(OSError):
        os.set_inheritable(listener.fileno(), False)  # noqa: FBT003 - it takes no keyword
        found_host, port = listener.getsockname()[:2]
        wanted = {each[4][0] for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
        if (
            found_host in wanted
            and port in ports
            and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        ):
            return listener
    listener.close()
    return None


def own_mark() -> str:
    """Identifies this process: its pid, its start time (pids are reused), its pid namespace."""
    return f"{os.getpid()}-{_started(os.getpid())}-{this_system().pid_namespace()}"


def kill_orphans() -> int:
    """Kill what dead supervisors left behind and wait until it is gone; returns the number of processes. Blocks
    briefly.

    A worker ends when its pipe closes, unless it hangs or is stopped: then it would keep its repository's lock forever,
    and block all work there. Finds none if the system does not show environments (macOS).
    """
    carrying = this_system().carrying(MARK)
    found = {pid: started for pid, (started, mark) in carrying.items() if _ownerless(mark)}
    deadline_s = time.monotonic() + GONE_S
    while remaining := [
        pid for pid, entry in this_system().seen(found).items() if entry.started == found[pid]
    ]:
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= deadline_s:
            break
        time.sleep(0.01)
    return len(found)


def _ownerless(mark: str) -> bool:
    """Whether the mark names a process of our pid namespace that no longer exists."""
    owner, _, rest = mark.partition("-")
    started, _, namespace = rest.partition("-")
    return (
        owner.isdigit()
        and namespace == str(this_system().pid_namespace())
        and started != _started(int(owner))
    )


def _started(pid: int) -> str:
    """The start time of the process; "" if there is none."""
    found = this_system().seen([pid]).get(pid)
    return found.started if found else ""

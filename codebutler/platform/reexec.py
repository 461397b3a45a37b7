"""Restarts this process in place: the same command, pid and environment, with the code that is installed now.

To a service manager it stays the same process. A listening socket can be left open for the next run: clients that
connect in between wait in its queue.
"""

from __future__ import annotations

import atexit
import os
import resource
import signal
import socket
import sys
from contextlib import suppress

from codebutler.domain.errors import EXIT_FAILED
from codebutler.platform.processes import lower_to
from codebutler.platform.system import this_system

LISTENER = "CODEBUTLER_LISTENER"


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

"""A listening socket, before there is a server on it."""

from __future__ import annotations

import errno
import socket

from codebutler.domain.errors import CodeButlerError

LAST_PORT = 65535


def listen(host: str, port: int, *, or_next: int = 0) -> socket.socket:
    """A listening socket; port 0 = any free one. Is it in use, one of the ``or_next`` after it.

    Raises CodeButlerError when none can be had.
    """
    for candidate in range(port, min(port + or_next, LAST_PORT) + 1):
        try:
            return _listen(host, candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise CodeButlerError(f"cannot listen on {host}:{candidate}: {error.strerror}") from None
    hint = "dashboard.port" if or_next else "--port"
    raise CodeButlerError(f"port {port} is in use: choose another with {hint}")


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except UnicodeError as error:
        listener.close()
        raise OSError(errno.EINVAL, "that is no host's name") from error
    except OSError:
        listener.close()
        raise
    return listener

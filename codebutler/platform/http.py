"""Addresses and sockets on this machine: where a URL leads, which browser requests are allowed, where we listen.

A hostile page can have its own name resolve to our address (DNS rebinding), and can send requests anywhere. It cannot
choose ``Host`` and ``Origin``: the browser sets them (RFC 9110, 7.2; Fetch, "Origin header").
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from codebutler.domain.errors import CodeButlerError

LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
LAST_PORT = 65535


def is_local_url(url: str) -> bool:
    """Whether ``url`` names this machine."""
    host = urlsplit(url).hostname or ""
    return is_loopback(host) or host.endswith(".localhost")


def proxy_for(url: str) -> str | None:
    """The environment's proxy for ``url``; none for this machine, NO_PROXY is honoured."""
    parts = urlsplit(url)
    if is_local_url(url) or proxy_bypass(parts.hostname or ""):
        return None
    return getproxies_environment().get(parts.scheme)


def failure_of(error: Exception) -> str:
    """Why a request failed, in words, without its address: that may contain a token."""
    cause = getattr(error, "os_error", error)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(cause, socket.gaierror):
        return "its name does not resolve"
    if isinstance(error, ssl.SSLError):
        return "its certificate is not trusted"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return type(error).__name__


def is_loopback(host: str) -> bool:
    """Whether a host name or IP address, without port, leads to this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_everywhere(host: str) -> bool:
    """Whether a server bound to ``host`` listens at every address of this machine: then it is not an address for a
    browser."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def admits(host: str, origin: str | None, bound_to: str) -> bool:
    """Whether a request with these headers is meant for the server bound to ``bound_to``.

    Beyond loopback, its own name and any address are accepted: an address cannot be made to point elsewhere.
    """
    name = _name(f"//{host}")
    known = (
        name in LOCAL_NAMES or name == bound_to.lower() or (not is_loopback(bound_to) and _is_address(name))
    )
    return known and (origin is None or origin == f"http://{host}")


def _is_address(name: str | None) -> bool:
    try:
        return ip_address(name or "") is not None
    except ValueError:
        return False


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def listen(host: str, port: int, *, or_next: int = 0) -> socket.socket:
    """A listening socket; port 0 = any free one. If the port is in use, one of the ``or_next`` after it.

    Raises CodeButlerError if none is free.
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
        raise OSError(errno.EINVAL, "not a valid host name") from error
    except OSError:
        listener.close()
        raise
    return listener

"""A listening socket that one run of a process leaves to the next."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from codebutler.platform.http import listen
from codebutler.platform.processes import LISTENER, leave_open, left_open

HOST = "127.0.0.1"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where a socket was left open; the one that listened is closed."""
    monkeypatch.setenv(LISTENER, "")
    listener = listen(HOST, 0)
    port = listener.getsockname()[1]
    leave_open(listener)
    listener.close()
    yield port
    if number := os.environ.pop(LISTENER, ""):
        os.close(int(number))


def test_who_connects_in_between_is_served_by_the_next_run(port: int) -> None:
    with socket.create_connection((HOST, port)) as caller:
        listener = left_open(HOST, range(port, port + 1))
        assert listener is not None
        with listener, listener.accept()[0] as served:
            assert not os.get_inheritable(listener.fileno())
            served.sendall(b"hello")
            assert caller.recv(5) == b"hello"
    assert LISTENER not in os.environ


@pytest.mark.parametrize(("host", "ahead"), [(HOST, 1), ("127.0.0.2", 0)])
def test_one_that_listens_elsewhere_is_closed(port: int, host: str, ahead: int) -> None:
    assert left_open(host, range(port + ahead, port + ahead + 1)) is None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port))


def test_a_name_is_looked_up(port: int) -> None:
    listener = left_open("localhost", range(port, port + 1))
    assert listener is not None
    listener.close()


@pytest.mark.parametrize("number", ["", "x", "-1", "987654"])
def test_a_number_that_is_no_socket_is_none(monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    monkeypatch.setenv(LISTENER, number)
    assert left_open(HOST, range(1, 2)) is None

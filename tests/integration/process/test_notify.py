"""Notification of the service manager over real datagram sockets."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from codebutler.domain.errors import CodeButlerError
from codebutler.platform.signals import BEAT_S, Stopping, address_of, beat_of, notifying
from codebutler.supervisor.forkserver import scrubbed
from tests.clock import ManualClock

HALF_S = 5.0
WATCHDOG = {"WATCHDOG_USEC": str(int(HALF_S * 2_000_000))}


class Manager:
    """Receives what a service would send to systemd."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)

    async def heard(self) -> list[str]:
        """The next datagram's assignments."""
        async with asyncio.timeout(10):
            data = await asyncio.get_running_loop().sock_recv(self._socket, 4096)
        return data.decode().splitlines()

    def silent(self) -> bool:
        try:
            self._socket.recv(4096, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Where to bind, and what NOTIFY_SOCKET says."""
    if request.param == "path":
        return str(tmp_path / "notify"), str(tmp_path / "notify")
    if sys.platform != "linux":
        pytest.skip("abstract sockets are Linux's")
    name = f"codebutler-test-{secrets.token_hex(8)}"
    return f"\0{name}", f"@{name}"


@pytest.fixture
def manager(place: tuple[str, str]) -> Iterator[Manager]:
    listening = Manager(place[0])
    yield listening
    listening.close()


async def test_it_hears_of_the_start_of_readiness_and_of_the_end(
    manager: Manager, place: tuple[str, str]
) -> None:
    clock, stopping = ManualClock(), Stopping()
    env = {"NOTIFY_SOCKET": place[1], **WATCHDOG}
    async with notifying(env, clock, stopping, lambda: "2 repositories"):
        assert await manager.heard() == ["EXTEND_TIMEOUT_USEC=60000000", "STATUS=starting: 2 repositories"]
        stopping.ready.set()
        assert await manager.heard() == ["READY=1", "STATUS=2 repositories"]
        await clock.advance(HALF_S)
        assert await manager.heard() == ["WATCHDOG=1", "STATUS=2 repositories"]
        stopping.ask()
        assert await manager.heard() == ["STOPPING=1", "STATUS=finishing running work"]
        await clock.advance(HALF_S)
        assert await manager.heard() == ["WATCHDOG=1"]
        await clock.advance(HALF_S - 0.1)
        assert manager.silent()


async def test_a_stop_before_readiness_is_not_called_ready(manager: Manager, place: tuple[str, str]) -> None:
    stopping = Stopping()
    async with notifying({"NOTIFY_SOCKET": place[1]}, ManualClock(), stopping, lambda: ""):
        await manager.heard()
        stopping.ask()
        assert (await manager.heard())[0] == "STOPPING=1"
        stopping.ready.set()
        await ManualClock().advance(0)
        assert manager.silent()


async def test_a_restart_in_place_is_no_stop(manager: Manager, place: tuple[str, str]) -> None:
    stopping = Stopping(may_restart=True)
    async with notifying({"NOTIFY_SOCKET": place[1]}, ManualClock(), stopping, lambda: ""):
        await manager.heard()
        stopping.restart()
        first, second, *_ = await manager.heard()
        assert first == "RELOADING=1"
        assert second.removeprefix("MONOTONIC_USEC=").isdigit()


def test_a_signal_turns_a_restart_into_a_stop() -> None:
    stopping = Stopping(may_restart=True)
    stopping.restart()
    stopping.restart()
    assert stopping.restarts
    stopping.ask()
    assert (stopping.restarts, stopping.insisted.is_set()) == (False, False)
    stopping.ask()
    assert stopping.insisted.is_set()
    with pytest.raises(CodeButlerError, match="already stopping"):
        stopping.restart()


def test_what_runs_inside_another_program_is_not_restarted() -> None:
    stopping = Stopping()
    with pytest.raises(CodeButlerError, match="demo"):
        stopping.restart()
    assert not stopping.asked.is_set()


async def test_a_manager_that_is_gone_is_no_reason_to_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, stopping = ManualClock(), Stopping()
    env = {"NOTIFY_SOCKET": str(tmp_path / "nobody"), **WATCHDOG}
    async with notifying(env, clock, stopping, lambda: ""):
        await clock.advance(HALF_S)
        late = Manager(str(tmp_path / "nobody"))
        await clock.advance(HALF_S)
        assert (await late.heard())[0].startswith("EXTEND_TIMEOUT_USEC=")
        late.close()
    assert len([record for record in caplog.records if "cannot be notified" in record.message]) == 1


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1"])
def test_other_addresses_are_left_alone(address: str) -> None:
    assert address_of(address) is None


@pytest.mark.parametrize(
    ("env", "beat_s"),
    [
        ({}, BEAT_S),
        ({"WATCHDOG_USEC": "0"}, BEAT_S),
        ({"WATCHDOG_USEC": "soon"}, BEAT_S),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": str(os.getpid())}, 2.0),
        ({"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"}, BEAT_S),
    ],
)
def test_a_sign_of_life_comes_twice_as_often_as_it_is_due(env: dict[str, str], beat_s: float) -> None:
    assert beat_of(env) == beat_s


def test_no_worker_can_speak_to_the_manager() -> None:
    told = {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "PATH": "/bin"}
    assert scrubbed(told).keys() == {"PATH", "PYTHONSAFEPATH", "MALLOC_MMAP_THRESHOLD_"}

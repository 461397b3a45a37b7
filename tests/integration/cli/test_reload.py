from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codebutler.config.paths import Home
from codebutler.protocol.control import (
    ChatInput,
    ChatRequest,
    ControlReply,
    ControlRequest,
    Done,
    Failed,
    ReloadRequest,
    control_server,
)
from tests.integration.cli.conftest import Cli


class Recorder:
    """A control that answers everything with one reply."""

    def __init__(self, reply: ControlReply) -> None:
        self.requests: list[ControlRequest] = []
        self._reply = reply

    async def answer(self, request: ControlRequest) -> AsyncIterator[ControlReply]:
        self.requests.append(request)
        yield self._reply

    async def chat(
        self, request: ChatRequest, inputs: AsyncIterator[ChatInput]
    ) -> AsyncIterator[ControlReply]:
        self.requests.append(request)
        yield self._reply


@contextmanager
def supervising(home: Home, recorder: Recorder) -> Iterator[None]:
    """The control socket of ``home``, served from a thread."""
    ready, loop, done = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with control_server(home.socket, recorder.answer, recorder.chat):
            ready.set()
            await done.wait()

    def run() -> None:
        loop.run_until_complete(serve())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(10)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(10)


def test_a_running_supervisor_takes_each_change_in(connected: Cli, git_repo: Path) -> None:
    recorder = Recorder(Done(text="1 added"))
    with supervising(connected.home, recorder):
        added = connected("add-repo", str(git_repo), "--channel", "C0MINE000")
        connected("trust", "repo")
        connected("remove-repo", "repo")
        connected("setup", "--allow-user", "U0456DEF")

    assert recorder.requests == [ReloadRequest()] * 4
    assert "Supervisor reloaded: 1 added" in added.err


def test_a_change_the_supervisor_refuses_is_still_saved(connected: Cli, git_repo: Path) -> None:
    with supervising(connected.home, Recorder(Failed(text="the disk is full"))):
        result = connected("add-repo", str(git_repo), "--channel", "C0MINE000")

    assert result.code == 0
    assert "did not reload: the disk is full" in result.err
    assert "repo" in connected("repos").out


@pytest.mark.parametrize("leftover", [True, False])
def test_without_a_supervisor_there_is_nothing_to_tell(
    connected: Cli, git_repo: Path, leftover: bool
) -> None:
    if leftover:
        connected.home.socket.write_text("")

    result = connected("add-repo", str(git_repo), "--channel", "C0MINE000")

    assert result.code == 0
    assert "supervisor" not in result.err

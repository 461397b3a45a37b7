"""The chat's own side of the control socket, over a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codebutler.cli.chatroom.conversation import ChatConnection
from codebutler.domain.errors import CodeButlerError, NotRunningError
from codebutler.protocol.control import (
    ChatInput,
    ChatOpened,
    ChatRequest,
    ControlReply,
    ControlRequest,
    Press,
    Said,
    Say,
    control_server,
)


class Echo:
    """Says what it was wished, and ends the chat at the word ``bye``."""

    async def answer(self, request: ControlRequest) -> AsyncIterator[ControlReply]:
        raise CodeButlerError(f"not asked: {request}")
        yield  # pragma: no cover - makes it a generator

    async def chat(
        self, request: ChatRequest, inputs: AsyncIterator[ChatInput]
    ) -> AsyncIterator[ControlReply]:
        if request.repo != "sample":
            raise CodeButlerError("no repository is served under the name that")
        yield ChatOpened(repo=request.repo, agent="echo", thread=request.thread)
        async for given in inputs:
            if given == Say(text="bye"):
                return
            yield Said(text=given.text if isinstance(given, Say) else given.value)


def heard(link: ChatConnection, count: int) -> list[ControlReply]:
    found: list[ControlReply] = []
    while len(found) < count:
        found += link.replies()
    return found


def converse(path: Path) -> list[ControlReply]:
    with ChatConnection(path, ChatRequest(repo="sample", thread="1.1")) as link:
        link.send(Say(text="x" * 300_000))
        link.send(Press(ref="1.2", action_id="a", value="v"))
        found = heard(link, 3)
        link.send(Say(text="bye"))
        with pytest.raises(CodeButlerError, match="the supervisor has stopped"):
            heard(link, 1)
        return found


async def test_wishes_go_in_and_replies_come_out_in_order(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    async with control_server(path, Echo().answer, Echo().chat):
        async with asyncio.timeout(30):
            replies = await asyncio.to_thread(converse, path)
    assert replies == [
        ChatOpened(repo="sample", agent="echo", thread="1.1"),
        Said(text="x" * 300_000),
        Said(text="v"),
    ]


def refused(path: Path) -> None:
    with ChatConnection(path, ChatRequest(repo="other")) as link:
        heard(link, 1)


async def test_a_refusal_is_its_line(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    async with control_server(path, Echo().answer, Echo().chat):
        with pytest.raises(CodeButlerError, match="no repository is served under the name that"):
            async with asyncio.timeout(30):
                await asyncio.to_thread(refused, path)


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError):
        ChatConnection(tmp_path / ("x" * 120), ChatRequest(repo="sample"))
    with pytest.raises(NotRunningError):
        ChatConnection(tmp_path / "s.sock", ChatRequest(repo="sample"))

"""Dozens of posts whose connections break, before or after they took effect: each stands once."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.slack.api import SlackApi
from codebutler.domain.clock import SystemClock
from codebutler.domain.message import said
from codebutler.domain.model import Post
from codebutler.workspace.api import Fault, Kind
from codebutler.workspace.server import Options, WorkspaceServer
from tests.notes import Notes

CHANNELS = tuple(f"room-{number}" for number in range(18))
POSTS = 36
KINDS: tuple[Kind, ...] = ("lost", "lost", "reset")


async def test_broken_connections_make_no_duplicate_and_lose_nothing() -> None:
    rng = Random(3)
    async with WorkspaceServer(Options(channels=CHANNELS)) as workspace:
        for name in CHANNELS:
            channel = workspace.channel_id(name)
            workspace.call("conversations.join", workspace.bot_token, channel=channel)
        for _ in range(POSTS):
            workspace.faults.add(Fault(method="chat.postMessage", kind=rng.choice(KINDS)))
        async with (
            SlackApi(workspace.bot_token, workspace.api_url) as api,
            Sender(api, SystemClock(), Editor(lambda text: text), Notes(), rng=rng) as sender,
        ):
            async with asyncio.timeout(60):
                told = await asyncio.gather(*(_post(sender, workspace, number) for number in range(POSTS)))
        assert workspace.faults.pending() == ()
        shown = {
            (name, message.ts): message.text
            for name in CHANNELS
            for message in workspace.workspace.channel(workspace.channel_id(name)).messages.values()
            if message.by_app and message.metadata
        }
        assert Counter(shown.values()) == Counter(f"answer {number}" for number in range(POSTS))
        assert set(told) == set(shown)


async def _post(sender: Sender, workspace: WorkspaceServer, number: int) -> tuple[str, str]:
    name = CHANNELS[number % len(CHANNELS)]
    root = workspace.say(name, "question") if number % 2 else None
    operation = Post(message=said(f"answer {number}"), thread=root)
    return name, await sender.submit(workspace.channel_id(name), f"op-{number}", operation)


async def test_what_is_still_under_way_inside_slack_when_we_start_again_is_not_posted_twice() -> None:
    """The process that sent it is dead, its request is not: looked for at once, it would not be there yet."""
    async with WorkspaceServer() as workspace:
        channel = workspace.channel_id("general")
        root = workspace.say("general", "question")
        answer = Post(message=said("answer"), thread=root)
        workspace.faults.add(Fault(method="chat.postMessage", kind="delay", delay_s=1.0))
        async with SlackApi(workspace.bot_token, workspace.api_url) as api, asyncio.timeout(20):
            under_way = asyncio.create_task(api.post(channel, answer, "op"))
            async with Sender(api, SystemClock(), Editor(str), Notes()) as sender:
                ts = await sender.submit(channel, "op", answer, unsure=True)
            assert ts == await under_way
        assert [message["ts"] for message in workspace.thread("general", root)] == [root, ts]

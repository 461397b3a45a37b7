"""What is to be said in a closed channel waits until it is open."""

from __future__ import annotations

import asyncio

import pytest

from codebutler.clock import ManualClock, settle
from codebutler.errors import ChatError
from codebutler.slack.channels import PROBE_S, ChannelMoved, Channels


class Channel:
    """One that may be closed."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.tries = 0

    async def say(self) -> str:
        self.tries += 1
        if self.code:
            raise ChatError(code=self.code)
        return "1.1"


@pytest.mark.parametrize("code", ["is_archived", "not_in_channel", "channel_not_found"])
async def test_it_is_said_when_the_channel_is_back_and_not_tried_in_a_loop(code: str) -> None:
    clock, closed = ManualClock(), Channel(code)
    changes: list[str] = []
    channels = Channels(clock, lambda: changes.append(channels.trouble("C1")))
    said = asyncio.create_task(channels.when_open("C1", closed.say))
    await clock.advance(2.5 * PROBE_S)
    assert closed.tries == 3
    assert channels.trouble("C1")
    assert channels.trouble("C2") == ""
    closed.code = ""
    channels.moved(ChannelMoved("C1", "back"))
    await settle()
    assert await said == "1.1"
    assert [bool(change) for change in changes] == [True, False]


async def test_without_an_event_it_is_found_out_by_trying() -> None:
    clock, closed = ManualClock(), Channel("not_in_channel")
    said = asyncio.create_task(Channels(clock).when_open("C1", closed.say))
    await clock.advance(1)
    closed.code = ""
    await clock.advance(PROBE_S)
    assert await said == "1.1"


async def test_what_slack_says_of_a_channel_is_believed() -> None:
    channels = Channels(ManualClock())
    channels.moved(ChannelMoved("C1", "archived"))
    assert "unarchive it" in channels.trouble("C1")
    channels.moved(ChannelMoved("C1", "left"))
    assert "/invite" in channels.trouble("C1")
    channels.moved(ChannelMoved("C1", "back"))
    assert channels.trouble("C1") == ""


async def test_another_refusal_is_a_refusal() -> None:
    with pytest.raises(ChatError, match="msg_too_long"):
        await Channels(ManualClock()).when_open("C1", Channel("msg_too_long").say)

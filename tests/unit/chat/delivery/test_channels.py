"""What is to be said in a closed channel waits until it is open."""

from __future__ import annotations

import asyncio

import pytest

from codebutler.chat.delivery.access import PROBE_S
from codebutler.chat.port import ChannelMoved
from codebutler.domain.errors import ChatError
from tests.clock import settle
from tests.unit.chat.delivery.test_sender import Bench, C, bench, post


def say(b: Bench, op_id: str, channel: str = C, thread_ts: str | None = None) -> asyncio.Task[str]:
    """A worker says something: it keeps it until it is said."""
    submit = b.sender.submit(channel, op_id, post(op_id, thread_ts), lasting=True)
    b.tasks.append(task := asyncio.ensure_future(submit))
    return task


@pytest.mark.parametrize("code", ["is_archived", "not_in_channel", "channel_not_found"])
async def test_it_is_said_when_the_channel_is_back_and_not_tried_in_a_loop(code: str) -> None:
    async with bench() as b:
        channels, changes = b.sender.channels, list[str]()
        channels.changed.add(lambda: changes.append(channels.trouble(C)))
        b.chat.fail_next("post", ChatError(code=code), times=3)
        said = say(b, "one")
        await b.passes(2.5 * PROBE_S)
        assert b.chat.calls.count("post") == 3
        assert channels.trouble(C)
        assert channels.trouble("C2") == ""
        channels.moved(ChannelMoved(C, "back"))
        await settle()
        assert await said
        assert [bool(change) for change in changes] == [True, False]


async def test_without_an_event_it_is_found_out_by_trying_once_and_all_that_waits_follows() -> None:
    async with bench() as b:
        roots = [b.chat.say(C, "U1", "question") for _ in range(4)]
        b.chat.fail_next("post", ChatError(code="not_in_channel"), times=5)
        said = [say(b, f"op{number}", thread_ts=root) for number, root in enumerate(roots)]
        await b.passes(1)
        assert b.chat.calls.count("post") == 4
        await b.passes(PROBE_S)
        assert b.chat.calls.count("post") == 5, "one call a minute finds out"
        await b.passes(PROBE_S)
        await asyncio.gather(*said)


async def test_a_closed_channel_holds_up_no_other_and_no_end() -> None:
    async with bench() as b:
        b.chat.fail_next("post", ChatError(code="is_archived"))
        say(b, "closed")
        await settle()
        assert await say(b, "open", "C2")
        assert b.sender.pending == 0
        await b.sender.drain()


async def test_who_keeps_nothing_is_told_at_once() -> None:
    async with bench() as b:
        b.chat.fail_next("post", ChatError(code="is_archived"), times=2)
        say(b, "kept")
        with pytest.raises(ChatError, match="is_archived"):
            await b.submit("notice", post("notice"))


async def test_what_slack_says_of_a_channel_is_believed() -> None:
    async with bench() as b:
        channels = b.sender.channels
        channels.moved(ChannelMoved(C, "archived"))
        assert "unarchive it" in channels.trouble(C)
        channels.moved(ChannelMoved(C, "left"))
        assert "/invite" in channels.trouble(C)
        channels.moved(ChannelMoved(C, "back"))
        assert channels.trouble(C) == ""


async def test_another_refusal_is_a_refusal() -> None:
    async with bench() as b:
        b.chat.fail_next("post", ChatError(code="msg_too_long"), times=2)
        with pytest.raises(ChatError, match="msg_too_long"):
            await say(b, "x" * 5000)

"""Two chats at once: what is said reaches the chat of its channel, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from codebutler.chat.chats import Chats, ServedChat, StatusBoard
from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.config.chats import ChatName
from codebutler.domain.errors import ChatAuthError, ChatError
from codebutler.domain.message import said
from codebutler.domain.model import Post
from tests.clock import ManualClock, settle
from tests.memory_chat import MemoryChat
from tests.notes import Notes

GROUP = "tg:-1001234"
NAMES: tuple[ChatName, ...] = ("Slack", "Telegram")


@pytest.fixture
async def two() -> AsyncIterator[tuple[Chats, MemoryChat, MemoryChat]]:
    clock, chats, served = ManualClock(), (MemoryChat(), MemoryChat()), []
    async with AsyncExitStack() as stack:
        for name, chat in zip(NAMES, chats, strict=True):
            sender = await stack.enter_async_context(Sender(chat, clock, Editor(str), Notes()))
            statuses = StatusBoard(None, clock, str)
            served.append(ServedChat(name=name, chat=chat, sender=sender, statuses=statuses))
        yield Chats(served), *chats


async def test_each_message_goes_to_the_chat_of_its_channel(
    two: tuple[Chats, MemoryChat, MemoryChat],
) -> None:
    chats, slack, telegram = two
    for channel in ("C1", GROUP):
        await chats.submit(channel, f"op {channel}", Post(message=said(f"to {channel}")))
    assert [(done.channel, done.operation) for done in slack.done] == [("C1", Post(message=said("to C1")))]
    assert [(done.channel, done.operation) for done in telegram.done] == [
        (GROUP, Post(message=said(f"to {GROUP}")))
    ]


async def test_history_is_that_of_the_channels_chat(two: tuple[Chats, MemoryChat, MemoryChat]) -> None:
    chats, slack, telegram = two
    slack.say("C1", "U0ANA", "in Slack")
    telegram.say(GROUP, "tg:111", "in Telegram")
    page = await chats.history(GROUP)
    assert [message.text for message in page.messages] == ["in Telegram"]


async def test_a_token_that_one_chat_refuses_holds_nothing_up_in_the_other(
    two: tuple[Chats, MemoryChat, MemoryChat],
) -> None:
    chats, slack, telegram = two
    slack.fail_next("post", ChatAuthError("Slack refuses the token"), times=100)
    slack.fail_next("identity", ChatAuthError("Slack refuses the token"), times=100)
    waiting = asyncio.create_task(chats.submit("C1", "op", Post(message=said("later"))))
    await settle()
    assert await chats.submit(GROUP, "op", Post(message=said("all is well")))
    assert chats.trouble("C1") == "Slack refuses the token"
    assert chats.trouble(GROUP) == ""
    assert chats.pending == 1
    assert len(telegram.done) == 1
    waiting.cancel()


async def test_a_chat_that_is_not_served_refuses(two: tuple[Chats, MemoryChat, MemoryChat]) -> None:
    chats, _, _ = two
    slack_only = Chats([chats.named("Slack")])
    with pytest.raises(ChatError, match="Telegram is not connected"):
        await slack_only.submit(GROUP, "op", Post(message=said("hello")))


async def test_each_message_has_the_address_of_its_own_chat(
    two: tuple[Chats, MemoryChat, MemoryChat],
) -> None:
    address = await two[0].addresses()
    assert address("C1", "1.2") == "https://slack.com/archives/C1/p12"
    assert address("tg:-1001", "000000000005") == "https://t.me/c/1/5"

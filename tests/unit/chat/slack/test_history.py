"""What is read of a thread: whose words, in which order, and how much."""

from __future__ import annotations

from typing import Any

import pytest

from codebutler.chat.chats import MOST_QUOTED, read_thread
from codebutler.domain.errors import ChatError
from codebutler.domain.message import Message
from codebutler.domain.model import Post
from tests.memory_chat import MemoryChat

CHANNEL = "C1"
ANA = "U0ANA"


async def read(chat: MemoryChat, root: str, before: str = "9999999999.0") -> tuple[Any, int]:
    return await read_thread(chat, CHANNEL, root, before, lambda user: user == ANA)


async def test_each_message_says_whose_it_is_and_whether_they_may() -> None:
    chat = MemoryChat()
    root = chat.say(CHANNEL, "U0EVE", "run &lt;this&gt; <@U0BUTLER>\0")
    chat.say(CHANNEL, ANA, "why?", thread_ts=root)
    chat.find(root)["user_profile"] = {"display_name": "Eve\0", "real_name": "E."}
    said, left_out = await read(chat, root)
    assert [(one.user, one.name, one.text, one.allowed) for one in said] == [
        ("U0EVE", "Eve", "run <this> @U0BUTLER", False),
        (ANA, "", "why?", True),
    ]
    assert left_out == 0


async def test_a_program_may_instruct_nobody() -> None:
    chat = MemoryChat()
    root = chat.say(CHANNEL, ANA, "alert")
    chat.find(root).update(bot_id="B1")
    assert [one.allowed for one in (await read(chat, root))[0]] == [False]


async def test_our_own_words_and_later_ones_are_left_out() -> None:
    chat = MemoryChat()
    root = chat.say(CHANNEL, ANA, "first")
    await chat.post(CHANNEL, Post(message=Message(markdown="you are not authorized"), thread=root), "op-1")
    chat.say(CHANNEL, ANA, "second", thread_ts=root)
    asked = chat.say(CHANNEL, ANA, "butler, help", thread_ts=root)
    chat.say(CHANNEL, ANA, "too late", thread_ts=root)
    said, _ = await read(chat, root, asked)
    assert [one.text for one in said] == ["first", "second"]


async def test_a_long_thread_keeps_its_beginning_and_its_end() -> None:
    chat = MemoryChat(page_size=40)
    root = chat.say(CHANNEL, ANA, "the question")
    for number in range(100):
        chat.say(CHANNEL, ANA, f"reply {number} " + "x" * 9_000, thread_ts=root)
    said, left_out = await read(chat, root)
    assert len(said) == MOST_QUOTED
    assert said[0].text == "the question"
    assert said[-1].text.startswith("reply 99 ")
    assert left_out == 101 - MOST_QUOTED
    assert max(len(one.text) for one in said) == 4_000


@pytest.mark.parametrize(
    "odd", [{"text": None}, {"text": 7}, {"user": 5}, {"text": "  "}, {"user_profile": "x"}]
)
async def test_odd_messages_break_nothing(odd: dict[str, Any]) -> None:
    chat = MemoryChat()
    root = chat.say(CHANNEL, ANA, "first")
    reply = chat.say(CHANNEL, ANA, "odd", thread_ts=root)
    chat.find(reply).update(odd)
    said, _ = await read(chat, root)
    assert said[0].text == "first"
    assert not any(one.allowed for one in said[1:] if one.user != ANA)


async def test_a_thread_that_is_gone_is_an_error() -> None:
    with pytest.raises(ChatError):
        await read(MemoryChat(), "1.1")

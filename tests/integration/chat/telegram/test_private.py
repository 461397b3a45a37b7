"""What is for one person: their home, which /inbox brings, and what only they are told."""

from __future__ import annotations

from pathlib import Path

from codebutler.chat.layout import Box, Placed, Section, packed
from codebutler.chat.telegram.updates import InboxOpened
from codebutler.domain.message import ALLOW_ACTION, ANSWER_ACTION, DENY_ACTION, REASON_ACTION, Button, said
from codebutler.domain.model import Post
from tests.telegram.room import Room
from tests.telegram.server import ANA, BEN, GROUP, BotServer

USER = f"tg:{ANA}"


def placed(value: str) -> str:
    card = Placed(channel=f"tg:{GROUP}", message="000000000042", value=value, thread="000000000041")
    return packed(card)


PARTS = [
    Section("What needs you", "heading"),
    Section("🔐 Needs your approval: build"),
    Section(
        "Run `make`?",
        buttons=(
            Button("Allow", ALLOW_ACTION, placed("r1"), "primary"),
            Button("Deny with a reason…", REASON_ACTION, placed("r1")),
        ),
    ),
    Section("🤔 Needs your answer: deploy", begins=True),
    Section(
        "Which?",
        boxes=(Box("One", "q1:0"), Box("Two", "q1:1")),
        buttons=(Button("Done", ANSWER_ACTION, placed("q1:ticked")),),
    ),
    Section("Repositories", "heading"),
    Section("🟢 shop"),
]


async def test_a_home_is_one_pinned_message_that_is_edited(room: Room, server: BotServer) -> None:
    home = room.chat.capabilities.home
    assert home is not None
    await home.publish_home(USER, PARTS)
    await home.publish_home(USER, [*PARTS[:-1], Section("🔴 shop")])
    await home.publish_home(USER, [*PARTS[:-1], Section("🔴 shop")])
    (text,) = server.telegram.texts(ANA)
    assert text.startswith("What needs you\n1. 🔐 Needs your approval: build\nRun make?")
    assert "2. 🤔 Needs your answer: deploy" in text
    assert text.endswith("🔴 shop")
    (message,) = server.telegram.own(ANA)
    assert server.telegram.chats[ANA].pinned == message["message_id"]
    assert server.keys(ANA, message["message_id"]) == [
        ["1. Allow"],
        ["1. Deny with a reason…"],
        ["☐ 2. One"],
        ["☐ 2. Two"],
        ["2. Done"],
    ]


async def test_a_home_that_somebody_deleted_comes_back(room: Room, server: BotServer) -> None:
    await room.chat.private.publish_home(USER, PARTS)
    server.telegram.chats[ANA].messages.clear()
    await room.chat.private.publish_home(USER, [Section("Nothing.")])
    assert server.telegram.texts(ANA) == ["Nothing."]


async def test_who_asks_for_it_gets_it_below_all_that_was_said(server: BotServer, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Room(server, path) as room:
        await room.chat.private.publish_home(USER, PARTS)
    async with Room(server, path) as room:
        asked = server.say(ANA, "/inbox")
        await room.until(lambda: room.notices)
        assert room.notices == [InboxOpened(USER)]
        assert room.messages == []
        await room.chat.private.publish_home(USER, PARTS)
        (message,) = server.telegram.own(ANA)
        assert message["message_id"] > asked


async def test_what_is_pressed_there_is_pressed_on_the_card(room: Room, server: BotServer) -> None:
    await room.chat.private.publish_home(USER, PARTS)
    home = server.telegram.own(ANA)[0]["message_id"]
    for label in ("2. Two", "1. Allow", "2. Done"):
        query = server.press(ANA, home, label)
        await room.until(lambda name=query: name in server.telegram.answers)  # type: ignore[misc]
    allowed, sent = room.clicks
    assert (allowed.channel, allowed.message, allowed.thread) == (
        f"tg:{GROUP}",
        "000000000042",
        "000000000041",
    )
    assert (allowed.action_id, allowed.value, allowed.is_direct) == (ALLOW_ACTION, "r1", False)
    assert (sent.action_id, sent.value, sent.picked) == (ANSWER_ACTION, "q1:ticked", ("q1:1",))


async def test_a_reason_can_be_given_there(room: Room, server: BotServer) -> None:
    await room.chat.private.publish_home(USER, PARTS)
    query = server.press(ANA, server.telegram.own(ANA)[0]["message_id"], "Deny with")
    await room.until(lambda: query in server.telegram.answers)
    server.say(ANA, "not today", reply_to=server.telegram.own(ANA)[-1]["message_id"])
    await room.until(lambda: room.clicks)
    (click,) = room.clicks
    assert (click.channel, click.action_id, click.words) == (f"tg:{GROUP}", DENY_ACTION, "not today")


async def test_what_is_for_one_person_stands_in_their_private_chat(room: Room, server: BotServer) -> None:
    can = room.chat.capabilities.ephemeral
    assert can is not None
    assert await can.whisper(f"tg:{GROUP}", Post(message=said("psst"), only_for=USER))
    assert server.telegram.texts(ANA) == ["psst"]
    assert server.telegram.texts(GROUP) == []


async def test_who_has_not_opened_it_is_asked_to(room: Room, server: BotServer) -> None:
    root = server.say(GROUP, "hello", BEN)
    post = Post(message=said("psst"), only_for=f"tg:{BEN}", thread=f"{root:012d}")
    await room.chat.whisper(f"tg:{GROUP}", post)
    (text,) = server.telegram.texts(GROUP)
    assert "psst" not in text
    assert "press Start" in text

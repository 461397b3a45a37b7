"""Buttons in Telegram: each press is one decision by somebody who may, and is always answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.chat.telegram.presses import PRESSED_TWICE, REFUSED, UNKNOWN
from codebutler.domain.errors import ChatOutcomeUnknownError, StoreError
from codebutler.domain.message import (
    ALLOW_ACTION,
    ANSWER_ACTION,
    DENY_ACTION,
    ApprovalCard,
    Message,
    Option,
    PermissionRequest,
    Question,
    QuestionCard,
)
from codebutler.domain.model import Post, Update
from tests.clock import ManualClock
from tests.telegram.room import Room
from tests.telegram.server import ANA, BEN, FORUM, GROUP, BotServer, Fault
from tests.telegram.state import Polls, Telegram

CHANNEL = f"tg:{GROUP}"
CARD = Message(card=ApprovalCard((PermissionRequest(id="r1", texts=("Run `make`?",)),)))
QUESTION = Message(
    card=QuestionCard(
        (Question(id="q1", text="Which?", options=(Option("One"), Option("Two")), several=True),)
    )
)


async def post(room: Room, message: Message = CARD, thread: str | None = None) -> int:
    return int(await room.chat.post(CHANNEL, Post(message=message, thread=thread), "op1"))


async def answered(room: Room, query: str) -> str:
    await room.until(lambda: query in room.server.telegram.answers)
    return room.server.telegram.answers[query]


async def test_a_press_is_what_its_button_means(room: Room, server: BotServer) -> None:
    root = server.say(GROUP, "go")
    card = await post(room, thread=f"{root:012d}")
    assert await answered(room, server.press(GROUP, card, "Allow")) == ""
    (click,) = room.clicks
    assert (click.action_id, click.value, click.user) == (ALLOW_ACTION, "r1", f"tg:{ANA}")
    assert (click.channel, click.message, click.thread) == (CHANNEL, f"{card:012d}", f"{root:012d}")
    assert click.user_name == "Ana"


async def test_buttons_outlive_us(server: BotServer, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Room(server, path) as room:
        card = await post(room)
    async with Room(server, path) as room:
        await answered(room, server.press(GROUP, card, "Deny"))
        assert [click.action_id for click in room.clicks] == [DENY_ACTION]


async def test_a_second_tap_is_the_same_press(room: Room, server: BotServer) -> None:
    card = await post(room)
    first, second = server.press(GROUP, card, "Allow"), server.press(GROUP, card, "Allow")
    assert await answered(room, first) == ""
    assert await answered(room, second) == PRESSED_TWICE
    assert len(room.clicks) == 1


async def test_who_may_not_is_told_and_takes_nobody_elses_press(room: Room, server: BotServer) -> None:
    card = await post(room)
    assert await answered(room, server.press(GROUP, card, "Allow", BEN)) == REFUSED
    assert await answered(room, server.press(GROUP, card, "Deny with", BEN)) == REFUSED
    assert room.clicks == []
    assert await answered(room, server.press(GROUP, card, "Allow", ANA)) == ""
    assert len(room.clicks) == 1


async def test_what_a_client_makes_up_means_nothing(room: Room, server: BotServer) -> None:
    card = await post(room)
    other = int(await room.chat.post(CHANNEL, Post(message=CARD, thread=f"{card:012d}"), "op2"))
    data = server.telegram.chats[GROUP].messages[card]["reply_markup"]["inline_keyboard"][0][0][
        "callback_data"
    ]
    elsewhere = int(await room.chat.post(f"tg:{FORUM}", Post(message=CARD), "op3"))
    for query in (
        server.press_data(GROUP, card, "b:0-AAAAAAAAAAAA"),
        server.press_data(GROUP, card, "codebutler.allow:r1"),
        server.press_data(GROUP, card, ""),
        server.press_data(FORUM, elsewhere, data),
        server.press_data(GROUP, other, data),
    ):
        assert await answered(room, query) == UNKNOWN
    assert room.clicks == []


async def test_a_copy_that_we_do_not_know_of_means_the_same(room: Room, server: BotServer) -> None:
    server.faults.append(Fault("sendMessage", "lost"))
    with pytest.raises(ChatOutcomeUnknownError):
        await post(room)
    card = await post(room)
    copy, known = (message["message_id"] for message in server.telegram.own(GROUP))
    assert known == card
    assert await answered(room, server.press(GROUP, copy, "Allow")) == ""
    assert [(click.value, click.message) for click in room.clicks] == [("r1", f"{known:012d}")]


async def test_a_button_means_nothing_on_another_card(room: Room, server: BotServer) -> None:
    one, other = await post(room), int(await room.chat.post(CHANNEL, Post(message=CARD), "op2"))
    data = server.telegram.chats[GROUP].messages[one]["reply_markup"]["inline_keyboard"][0][0][
        "callback_data"
    ]
    assert await answered(room, server.press_data(GROUP, other, data)) == UNKNOWN
    assert room.clicks == []


async def test_a_press_that_the_disk_did_not_take_comes_again(
    room: Room, server: BotServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codebutler.chat.telegram.connection.RETRY_S", 0.01)
    card = await post(room)
    room.intake.accept = Refusing(2, room.intake.accept)  # type: ignore[method-assign,assignment]
    await answered(room, server.press(GROUP, card, "Allow"))
    assert len(room.clicks) == 1


class Refusing:
    """Takes nothing a few times."""

    def __init__(self, times: int, then: object) -> None:
        self.times = times
        self.then = then

    async def __call__(self, event: object, *, missed: bool = False) -> object:
        if self.times:
            self.times -= 1
            raise StoreError("the disk is full")
        return await self.then(event, missed=missed)  # type: ignore[operator]


async def test_boxes_are_ticked_and_sent_together(room: Room, server: BotServer) -> None:
    card = await post(room, QUESTION)
    for label in ("One", "Two", "One"):
        await answered(room, server.press(GROUP, card, label))
    await room.until(lambda: server.keys(GROUP, card) == [["☐ One"], ["☑ Two"], ["Done"]])
    assert room.clicks == []
    await answered(room, server.press(GROUP, card, "Done"))
    (click,) = room.clicks
    assert (click.action_id, click.picked) == (ANSWER_ACTION, ("q1:1",))


async def test_ticks_keep_to_what_a_group_takes_and_the_last_of_them_shows(
    server: BotServer, tmp_path: Path
) -> None:
    clock = ManualClock()
    async with Room(server, tmp_path / "journal.db", clock) as room:
        card = await post(room, QUESTION)
        for label in ("One", "Two") * 3:
            assert await answered(room, server.press(GROUP, card, label)) == ""
        assert len(server.named("editMessageReplyMarkup")) <= 3
        await room.in_time(lambda: server.keys(GROUP, card) == [["☑ One"], ["☑ Two"], ["Done"]])
        assert len(server.named("editMessageReplyMarkup")) <= 4


async def test_a_redraw_that_came_too_soon_is_done_later(server: BotServer, tmp_path: Path) -> None:
    clock = ManualClock()
    async with Room(server, tmp_path / "journal.db", clock) as room:
        card = await post(room, QUESTION)
        server.faults.append(Fault("editMessageReplyMarkup", "rate_limit", retry_after=7))
        assert await answered(room, server.press(GROUP, card, "One")) == ""
        await room.until(lambda: server.named("editMessageReplyMarkup"))
        assert server.keys(GROUP, card)[0] == ["☐ One"]
        await room.in_time(lambda: server.keys(GROUP, card)[0] == ["☑ One"])


async def test_what_was_sent_is_not_redrawn(server: BotServer, tmp_path: Path) -> None:
    clock = ManualClock()
    async with Room(server, tmp_path / "journal.db", clock) as room:
        card = await post(room, QUESTION)
        server.faults.append(Fault("editMessageReplyMarkup", "rate_limit", retry_after=7))
        await answered(room, server.press(GROUP, card, "One"))
        await room.until(lambda: server.named("editMessageReplyMarkup"))
        await answered(room, server.press(GROUP, card, "Done"))
        assert [click.picked for click in room.clicks] == [("q1:0",)]
        await clock.advance(30)
        # Whatever was to be redrawn would be by now: another card's is.
        other = int(await room.chat.post(CHANNEL, Post(message=QUESTION), "op2"))
        await answered(room, server.press(GROUP, other, "Two"))
        await room.in_time(lambda: server.keys(GROUP, other)[1] == ["☑ Two"])
        assert {each["message_id"] for each in server.named("editMessageReplyMarkup")[1:]} == {other}


async def test_what_is_ticked_is_known_after_a_restart(server: BotServer, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Room(server, path) as room:
        card = await post(room, QUESTION)
        await answered(room, server.press(GROUP, card, "Two"))
    async with Room(server, path) as room:
        await answered(room, server.press(GROUP, card, "Done"))
        assert [click.picked for click in room.clicks] == [("q1:1",)]


async def test_no_with_a_reason(server: BotServer, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Room(server, path) as room:
        root = server.say(GROUP, "go")
        card = await post(room, thread=f"{root:012d}")
        await answered(room, server.press(GROUP, card, "Deny with"))
        prompt = server.telegram.own(GROUP)[-1]
        assert prompt["text"] == "Ana: Why not, or what instead?"
        assert prompt["_forced"]["selective"]
        assert prompt["reply_to_message"]["message_id"] == card
        assert room.clicks == []
    async with Room(server, path) as room:
        server.say(GROUP, "stranger's words", BEN, reply_to=prompt["message_id"])
        await room.confirmed()
        assert room.clicks == []
        server.say(GROUP, "keep the cache", reply_to=prompt["message_id"])
        await room.confirmed()
        (click,) = room.clicks
        assert (click.action_id, click.value, click.words) == (DENY_ACTION, "r1", "keep the cache")
        assert (click.message, click.thread) == (f"{card:012d}", f"{root:012d}")
        await room.until(lambda: prompt["message_id"] not in server.telegram.chats[GROUP].messages)


async def test_a_card_keeps_its_name_however_long_it_is(room: Room, server: BotServer) -> None:
    long = Message(card=ApprovalCard((PermissionRequest(id="r1", texts=("word " * 1500, "Run it?")),)))
    ts = await room.chat.post(CHANNEL, Post(message=long), "op1")
    first, second = (message["message_id"] for message in server.telegram.own(GROUP))
    await answered(room, server.press(GROUP, second, "Allow"))
    assert [click.message for click in room.clicks] == [ts]
    assert int(ts) == first
    await room.chat.update(CHANNEL, Update(target=ts, message=Message(markdown="Allowed.")), "op2")
    assert server.telegram.texts(GROUP) == ["Allowed."]


async def test_a_press_of_an_hour_ago_is_lost_on_telegrams_side(server: BotServer, tmp_path: Path) -> None:
    """So the rows stay, and the buttons can be pressed again."""
    clock = ManualClock()
    telegram = Telegram(clock)
    telegram.chats.update(server.telegram.chats)
    telegram.query({"from": server.telegram.users[ANA], "data": "b:0-x"})
    telegram.tell("message", telegram.add(telegram.chats[GROUP], {"text": "a"}))
    await clock.advance(149)
    assert len(await Polls(telegram).get(None, 100, 0, None)) == 2
    await clock.advance(2)
    assert len(await Polls(telegram).get(None, 100, 0, None)) == 1
    await clock.advance(86_400)
    assert await Polls(telegram).get(None, 100, 0, None) == []

"""Telegram's updates, with the traps that others fell into."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codebutler.chat.payload import Ignored, PayloadError
from codebutler.chat.telegram.updates import (
    BotIdentity,
    ButtonPressed,
    GroupMoved,
    Membership,
    StartCommand,
    WrittenUpdate,
    parse,
)
from codebutler.domain.model import File

ME = BotIdentity(999, "butler_bot")
GROUP = {"id": -1001234567890, "title": "shop", "is_forum": True, "type": "supergroup"}
ANA = {"id": 111, "is_bot": False, "first_name": "Ana", "last_name": "B"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "message",
                    "chat",
                    "id",
                    "from",
                    "text",
                    "date",
                    "message_id",
                    "entities",
                    "photo",
                    "type",
                    "document",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


def message(**more: Any) -> dict[str, Any]:
    return {
        "update_id": 1,
        "message": {
            "message_id": 51,
            "from": ANA,
            "chat": GROUP,
            "date": 1795000000,
            "text": "fix it",
            **more,
        },
    }


def heard(**more: Any) -> WrittenUpdate:
    found = parse(message(**more), ME)
    assert isinstance(found, WrittenUpdate)
    return found


def test_a_message_in_a_topic() -> None:
    created = {"message_id": 48, "forum_topic_created": {"name": "login"}, "from": {"id": 999}}
    said = heard(message_thread_id=48, is_topic_message=True, reply_to_message=created)
    assert (said.spot.topic, said.spot.reply_to, said.user, said.name) == (48, 0, "tg:111", "Ana B")
    assert not said.mentioned, "the topic's own beginning is not what it answers"


def test_a_thread_that_is_no_topic_counts_for_nothing() -> None:
    said = heard(message_thread_id=48, reply_to_message={"message_id": 50, "from": {"id": 999}})
    assert (said.spot.topic, said.spot.reply_to, said.mentioned) == (0, 50, True)


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("/status", "!status"),
        ("/status@butler_bot now", "!status now"),
        ("/create_image a cat", "!create-image a cat"),
        ("/etc/hosts is odd", "/etc/hosts is odd"),
        ("/etc is odd", "/etc is odd"),
        ("/nonsense@Butler_Bot", "!nonsense"),
        ("!stop all", "!stop all"),
        ("@butler_bot fix it", "fix it"),
        ("@butler_bot: /status", "!status"),
    ],
)
def test_commands_are_our_words(text: str, normalized: str) -> None:
    assert heard(text=text).text == normalized


def test_being_called_by_name() -> None:
    assert heard(text="hey @Butler_bot, fix it").mentioned
    assert not heard(text="hey @butler_bottom").mentioned
    assert heard(chat={"id": 111, "type": "private"}).spot.is_direct


@pytest.mark.parametrize(
    "more",
    [
        {"from": {"id": 5, "is_bot": True}},
        {"sender_chat": {"id": -100, "type": "channel"}},
        {"from": {"id": 1087968824}},
        {"chat": {"id": -100, "type": "channel"}},
        {"text": "/status@other_bot"},
        {"text": "", "new_chat_members": []},
        {"text": None},
    ],
)
def test_what_is_none_of_ours(more: dict[str, Any]) -> None:
    assert isinstance(parse(message(**more), ME), Ignored)


def test_an_unknown_kind_is_passed_over() -> None:
    assert isinstance(parse({"update_id": 1, "brand_new_thing": {"a": 1}}, ME), Ignored)


@pytest.mark.parametrize(
    "more",
    [
        {"chat": 5},
        {"message_id": "51"},
        {"date": None},
        {"from": None},
        {"from": {"id": {}}},
        {"document": {"file_name": "x"}},
    ],
)
def test_an_unknown_shape_is_an_error_of_its_own(more: dict[str, Any]) -> None:
    with pytest.raises(PayloadError):
        parse(message(**more), ME)


def test_an_unknown_status_is_a_membership() -> None:
    change = {"chat": GROUP, "from": ANA, "new_chat_member": {"status": ["left"]}}
    assert parse({"update_id": 1, "my_chat_member": change}, ME) == Membership(GROUP["id"], True, ANA["id"])


@settings(max_examples=500, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["message", "edited_message", "callback_query", "my_chat_member"]), JSON)
)
def test_nothing_else_comes_of_any_update(update: dict[str, Any]) -> None:
    with suppress(PayloadError):
        parse(update, ME)


def test_files_of_every_kind() -> None:
    photo = [{"file_id": "s", "width": 90, "file_size": 10}, {"file_id": "l", "width": 900, "file_size": 99}]
    said = heard(text="", caption="look", photo=photo)
    assert said.files == (File(id="l", name="photo-51.jpg", mimetype="image/jpeg", size_bytes=99),)
    assert said.text == "look"
    (voice,) = heard(text="", voice={"file_id": "v", "mime_type": "audio/ogg"}).files
    assert (voice.name, voice.mimetype, voice.is_voice) == ("voice-51.ogg", "audio/ogg", True)
    (document,) = heard(document={"file_id": "d", "file_name": "a.pdf", "mime_type": "application/pdf"}).files
    assert (document.name, document.url, document.is_voice) == ("a.pdf", "", False)


def test_code_and_links_as_people_write_them() -> None:
    entities = [
        {"type": "code", "offset": 3, "length": 4},
        {"type": "text_link", "offset": 8, "length": 4, "url": "https://example.com/a"},
        {"type": "bold", "offset": 0, "length": 2},
    ]
    assert heard(text="🦊 make docs", entities=entities).text == "🦊 `make` docs (https://example.com/a)"
    block = [{"type": "pre", "offset": 0, "length": 5, "language": "py"}]
    assert heard(text="x = 1", entities=block).text == "```py\nx = 1\n```"


def test_a_group_becomes_a_supergroup() -> None:
    assert parse(message(migrate_to_chat_id=-1005), ME) == GroupMoved(GROUP["id"], -1005)  # type: ignore[arg-type]  # IDs as numbers
    assert parse(message(migrate_from_chat_id=-5), ME) == GroupMoved(-5, GROUP["id"])  # type: ignore[arg-type]  # IDs as numbers


def test_the_private_chat_is_opened_with_a_code() -> None:
    found = parse(message(chat={"id": 111, "type": "private"}, text="/start Zk3x"), ME)
    assert isinstance(found, StartCommand)
    assert (found.user, found.code) == ("tg:111", "Zk3x")


def test_presses_and_edits_and_membership() -> None:
    key = {"text": "Allow", "callback_data": "b:0-x"}
    query = {
        "id": "4382",
        "from": ANA,
        "data": "b:0-x",
        "message": {"message_id": 52, "chat": GROUP, "reply_markup": {"inline_keyboard": [[key]]}},
    }
    pressed = parse({"callback_query": query}, ME)
    assert isinstance(pressed, ButtonPressed)
    assert (pressed.data, pressed.spot.message, pressed.button_rows) == ("b:0-x", 52, ((key,),))
    gone = {"callback_query": {**query, "message": {"message_id": 52, "chat": GROUP, "date": 0}}}
    assert isinstance(parse(gone, ME), ButtonPressed)
    edit = parse({"edited_message": {**message()["message"], "edit_date": 1795000009}}, ME)
    assert isinstance(edit, WrittenUpdate)
    assert edit.edited_at == 1795000009
    left = {"my_chat_member": {"chat": GROUP, "new_chat_member": {"status": "kicked"}}}
    assert parse(left, ME) == Membership(GROUP["id"], is_in=False)  # type: ignore[arg-type]


def test_half_a_surrogate_and_nul_can_be_kept() -> None:
    said = heard(text="a\ud83d\0b")
    assert json.loads(json.dumps(said.text)) == "a�b"
    said.text.encode()

"""Slack's shapes to events; what is not for us is ignored with a reason, what is broken is a typed error."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codebutler.chat.payload import Ignored, PayloadError
from codebutler.chat.port import ChannelMoved, Identity
from codebutler.chat.slack.payloads import HomeOpened, Notice, parse_envelope, shown
from codebutler.domain.model import Event, File, MessageEdited, MessagePosted
from tests import events
from tests.events import slashed

ME = Identity(user_id="UBOT", bot_id="BBOT", team_id="T1")
PLAIN: dict[str, Any] = {
    "type": "message",
    "user": "U1",
    "text": "hi",
    "ts": "1.1",
    "team": "T1",
    "channel": "C1",
    "event_ts": "1.1",
    "channel_type": "channel",
    "client_msg_id": "id",
    "blocks": [{"type": "rich_text", "elements": []}],
}


def event(**changes: Any) -> Event | Notice | Ignored:
    payload = {"type": "event_callback", "event_id": "Ev1", "event": PLAIN | changes}
    return parse_envelope("events_api", payload, ME)


def changed(message: dict[str, Any], previous: dict[str, Any] | None) -> Event | Notice | Ignored:
    return event(
        subtype="message_changed",
        hidden=True,
        ts="1.9",
        event_ts="1.9",
        message=message,
        previous_message=previous,
    )


def test_plain() -> None:
    assert event() == events.posted(channel="C1", ref="1.1", user="U1", text="hi")


def test_thread_reply() -> None:
    assert event(ts="1.2", thread_ts="1.1", parent_user_id="U9") == events.posted(
        channel="C1", ref="1.2", user="U1", text="hi", thread="1.1"
    )


def test_history_tells_our_own_marks_and_words_from_those_of_others() -> None:
    reactions = [{"name": "x", "users": ["U1"], "count": 1}, {"name": "eyes", "users": ["U1", "UBOT"]}, "?"]
    found = shown(PLAIN | {"reactions": reactions, "reply_users": ["U1", "UBOT"]}, "C1", ME)
    assert (found.marks, found.replied) == (frozenset({"eyes"}), True)
    found = shown(PLAIN | {"reactions": {"name": "x"}, "reply_users": ["U1"]}, "C1", ME)
    assert (found.marks, found.replied) == (frozenset(), False)


def test_first_message_of_a_thread_is_no_reply() -> None:
    posted = event(thread_ts="1.1", reply_count=2)
    assert isinstance(posted, MessagePosted)
    assert posted.thread is None
    assert posted.root == "1.1"


@pytest.mark.parametrize("subtype", ["thread_broadcast", "me_message", None, ""])
def test_subtypes_in_which_a_person_speaks(subtype: str | None) -> None:
    assert isinstance(event(subtype=subtype), MessagePosted)


def test_files() -> None:
    voice = {
        "id": "F1",
        "name": "audio.m4a",
        "mimetype": "audio/mp4",
        "size": 12,
        "url_private": "https://files.slack.com/a",
        "url_private_download": "https://files.slack.com/a/download",
        "subtype": "slack_audio",
    }
    posted = event(
        subtype="file_share", text="", files=[voice, {"id": "F2"}, {"id": "F3", "mode": "tombstone"}]
    )
    assert isinstance(posted, MessagePosted)
    assert posted.files == (
        File(
            id="F1",
            name="audio.m4a",
            mimetype="audio/mp4",
            size_bytes=12,
            url="https://files.slack.com/a/download",
            is_voice=True,
        ),
        File(id="F2"),
    )


def test_a_file_of_an_unknown_shape_is_a_file() -> None:
    message = event(files=[{"id": "F1", "mode": ["hosted"]}])
    assert isinstance(message, MessagePosted)
    assert len(message.files) == 1


def test_mention_is_the_same_event_as_the_message_it_is_in() -> None:
    text = "<@UBOT>: fix &lt;it&gt;"
    mention = event(type="app_mention", text=text)
    message = event(text=text)
    assert mention == message
    assert isinstance(message, MessagePosted)
    assert message.mentioned
    assert message.text == "fix <it>"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("<@UBOT> status", "status"),
        ("  <@UBOT|butler>, status", "status"),
        ("ask <@UBOT> now", "ask @UBOT now"),
        ("<@UBOTHER> hello", "@UBOTHER hello"),
        ("a &amp;&amp; b &lt; c", "a && b < c"),
        ("one\0two\ud800three", "onetwo�three"),
        ("<@UBOT>\nline", "\nline"),
    ],
)
def test_text(text: str, read: str) -> None:
    posted = event(text=text)
    assert isinstance(posted, MessagePosted)
    assert posted.text == read


@pytest.mark.parametrize(
    "changes",
    [
        {"user": "UBOT"},
        {"bot_id": "BBOT", "user": None},
        {"bot_id": "BOTHER"},
        {"bot_profile": {"id": "BOTHER"}},
        {"subtype": "bot_message", "user": None},
        {"subtype": "channel_join"},
        {"subtype": "tombstone"},
        {"subtype": "something_new"},
        {"user": "USLACKBOT"},
        {"type": "reaction_added"},
        {"type": "app_home_opened"},
    ],
)
def test_not_for_us(changes: dict[str, Any]) -> None:
    assert isinstance(event(**changes), Ignored)


def test_edit() -> None:
    message = PLAIN | {"text": "new", "edited": {"user": "U1", "ts": "1.3"}, "thread_ts": "1.0"}
    assert changed(message, PLAIN) == events.edited(
        channel="C1", ref="1.1", user="U1", text="new", edit="1.3", thread="1.0"
    )


def test_edit_is_by_the_one_who_edited() -> None:
    edited = changed(PLAIN | {"text": "new", "edited": {"user": "U2", "ts": "1.3"}}, PLAIN)
    assert isinstance(edited, MessageEdited)
    assert edited.user == "U2"


def test_link_preview_is_no_edit() -> None:
    assert isinstance(changed(PLAIN | {"attachments": [{}]}, PLAIN), Ignored)


def test_our_own_edit_is_ignored() -> None:
    ours = PLAIN | {"user": "UBOT", "bot_id": "BBOT"}
    assert isinstance(changed(ours | {"text": "new"}, ours), Ignored)


def test_deletion() -> None:
    deleted = event(subtype="message_deleted", deleted_ts="1.1", ts="1.9", previous_message=PLAIN)
    assert deleted == events.deleted(channel="C1", ref="1.1", user="U1")


def test_emptied_first_message_of_a_thread_is_a_deletion() -> None:
    tomb = {"type": "message", "subtype": "tombstone", "user": "USLACKBOT", "ts": "1.1", "thread_ts": "1.1"}
    assert changed(tomb, PLAIN) == events.deleted(channel="C1", ref="1.1", user="U1")


@pytest.mark.parametrize("previous", [None, PLAIN | {"user": "UBOT"}, PLAIN | {"bot_id": "B2"}])
def test_deletion_of_what_no_person_said_is_ignored(previous: dict[str, Any] | None) -> None:
    deleted = event(subtype="message_deleted", deleted_ts="1.1", ts="1.9", previous_message=previous)
    assert isinstance(deleted, Ignored)


def test_slash_command() -> None:
    payload = {
        "channel_id": "C1",
        "user_id": "U1",
        "command": "/butler",
        "text": " run ls &gt; x ",
        "trigger_id": "1.2.x",
    }
    assert parse_envelope("slash_commands", payload, ME) == slashed(
        channel="C1", user="U1", command="/butler", text="run ls > x", invocation="1.2.x"
    )


def test_history_tells_the_same_as_the_event() -> None:
    message = {key: value for key, value in PLAIN.items() if key != "channel"}
    assert shown(message, "C1", ME).event == event()
    assert shown(message | {"bot_id": "BBOT"}, "C1", ME).event is None


@pytest.mark.parametrize(
    "changes",
    [
        {"ts": None},
        {"ts": "yesterday"},
        {"ts": 1.1},
        {"channel": None},
        {"channel": ["C1"]},
        {"user": None},
        {"text": {"x": 1}},
        {"thread_ts": "../x"},
        {"subtype": "message_changed"},
        {"subtype": "message_changed", "message": []},
    ],
)
def test_malformed(changes: dict[str, Any]) -> None:
    with pytest.raises(PayloadError):
        event(**changes)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["type", "subtype", "user", "text", "ts", "channel", "message", "previous_message", "files", "edited"]
)


@settings(deadline=None)
@given(
    kind=st.sampled_from(["events_api", "interactive", "slash_commands", "x"]),
    payload=st.dictionaries(FIELDS, JSON),
)
def test_no_payload_raises_anything_else(kind: str, payload: dict[str, Any]) -> None:
    pressed: dict[str, Any] = {"type": "block_actions", "actions": [payload]}
    sent: dict[str, Any] = {
        "type": "view_submission",
        "view": {"callback_id": "codebutler.deny_form"} | payload,
    }
    for whole in (payload, {"event": PLAIN | payload}, {"type": "block_actions"} | payload, pressed, sent):
        with suppress(PayloadError):
            parse_envelope(kind, whole, ME)


def test_somebody_looks_at_our_home() -> None:
    assert event(type="app_home_opened", tab="home") == HomeOpened("U1")
    assert isinstance(event(type="app_home_opened", tab="messages"), Ignored)


@pytest.mark.parametrize(
    ("kind", "how"), [("channel_archive", "archived"), ("group_left", "left"), ("channel_unarchive", "back")]
)
def test_what_has_become_of_a_channel(kind: str, how: str) -> None:
    assert event(type=kind) == ChannelMoved("C1", how)


def test_only_our_own_return_to_a_channel_counts() -> None:
    assert event(type="member_joined_channel", user="UBOT") == ChannelMoved("C1", "back")
    assert isinstance(event(type="member_joined_channel"), Ignored)

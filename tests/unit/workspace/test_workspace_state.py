"""The workspace's data: order of timestamps, names, threads, deletions, and what render shows of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.workspace import render
from codebutler.workspace.state import Channel, Message, MethodError, Tokens, Workspace, discard, normalize_ts
from tests.clock import ManualClock

TOKENS = Tokens(bot="xoxb-1", app="xapp-1", user="xoxp-1")


@pytest.fixture
def workspace() -> Workspace:
    return Workspace(ManualClock(), TOKENS, ("demo",))


@pytest.fixture
def channel(workspace: Workspace) -> Channel:
    return workspace.channel("CDEMO000000")


def put(workspace: Workspace, channel: Channel, text: str, thread_ts: str | None = None) -> Message:
    message = Message(ts=workspace.next_ts(), user=workspace.person.id, text=text, thread_ts=thread_ts)
    channel.add(message)
    return message


async def test_timestamps_rise_strictly_even_when_time_stands_still() -> None:
    clock = ManualClock()
    workspace = Workspace(clock, TOKENS, ())
    stamps = [workspace.next_ts() for _ in range(1000)]
    await clock.advance(1)
    stamps.append(workspace.next_ts())
    assert stamps == sorted(set(stamps))


def test_ids_are_readable_and_differ(workspace: Workspace) -> None:
    same_letters = workspace.create_channel("de-mo", workspace.person.id)
    assert same_letters.id != "CDEMO000000"
    assert same_letters.id.startswith("C")
    assert workspace.person.id == "UYOU0000000"


@pytest.mark.parametrize("name", ["", "Upper", "two words", "x" * 81, "a/b"])
def test_channel_names_follow_slacks_rule(workspace: Workspace, name: str) -> None:
    with pytest.raises(MethodError, match="invalid_name"):
        workspace.create_channel(name, workspace.person.id)


def test_replies_stay_out_of_the_timeline(workspace: Workspace, channel: Channel) -> None:
    root = put(workspace, channel, "root")
    reply = put(workspace, channel, "reply", root.ts)
    assert channel.timeline == [root.ts]
    assert channel.thread_root(reply.ts) == root.ts
    told = render.message(workspace, channel, root)
    assert (told["thread_ts"], told["reply_count"], told["latest_reply"]) == (root.ts, 1, reply.ts)
    assert render.message(workspace, channel, reply)["parent_user_id"] == workspace.person.id


def test_a_deleted_root_leaves_a_tombstone_while_it_has_replies(
    workspace: Workspace, channel: Channel
) -> None:
    root = put(workspace, channel, "root")
    reply = put(workspace, channel, "reply", root.ts)
    channel.remove(root)
    assert render.message(workspace, channel, channel.messages[root.ts])["subtype"] == "tombstone"
    assert channel.timeline == [root.ts]
    channel.remove(reply)
    assert channel.messages[root.ts].replies == []
    with pytest.raises(MethodError, match="message_not_found"):
        channel.message(root.ts)


def test_a_deleted_message_can_still_be_answered(workspace: Workspace, channel: Channel) -> None:
    gone = put(workspace, channel, "oops")
    channel.remove(gone)
    assert channel.timeline == []
    assert put(workspace, channel, "late answer", channel.thread_root(gone.ts)).is_reply


def test_app_posts_carry_the_bots_marks_and_no_subtype(workspace: Workspace, channel: Channel) -> None:
    message = Message(ts=workspace.next_ts(), user=workspace.bot.id, text="x", by_app=True)
    channel.add(message)
    told = render.message(workspace, channel, message)
    assert (told["bot_id"], told["app_id"]) == (workspace.bot.bot_id, workspace.app_id)
    assert "subtype" not in told


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("1610241741", "1610241741.000000"),
        ("1610241741.0002", "1610241741.000200"),
        ("1", "0000000001.000000"),
        ("1610241741.000200", "1610241741.000200"),
    ],
)
def test_a_callers_ts_compares_with_stored_ones(given: str, stored: str) -> None:
    assert normalize_ts(given) == stored


@pytest.mark.parametrize("text", ["", "abc", "-1", "1.x", "1,5"])
def test_what_is_no_ts_is_refused(text: str) -> None:
    with pytest.raises(MethodError):
        normalize_ts(text)


@given(st.lists(st.text("0123456789", min_size=1), unique=True), st.text("0123456789", min_size=1))
def test_discard_takes_out_exactly_one(items: list[str], item: str) -> None:
    items.sort()
    left = list(items)
    discard(left, item)
    assert left == [known for known in items if known != item]

"""What common bots call beyond the first methods, with Slack's own client and Slack's own shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from slack_sdk.models.messages.chunk import MarkdownTextChunk, TaskUpdateChunk
from slack_sdk.web.async_client import AsyncWebClient
from websockets.asyncio.client import ClientConnection, connect

from codebutler.workspace.manifest import Subscriptions, subscriptions_of
from codebutler.workspace.server import Options, WorkspaceServer
from codebutler.workspace.state import Json
from tests.clock import ManualClock
from tests.integration.workspace.conftest import client_for, refused


async def test_a_message_goes_to_a_channel_by_name_and_to_a_person(
    bot: AsyncWebClient, person: AsyncWebClient, server: WorkspaceServer, channel: str
) -> None:
    for name in ("#demo", "demo", channel):
        assert (await bot.chat_postMessage(channel=name, text="hello"))["channel"] == channel
    direct = (await bot.chat_postMessage(channel=server.workspace.person.id, text="for you"))["channel"]
    assert direct.startswith("D")
    history = await person.conversations_history(channel=direct)
    assert [message["text"] for message in history["messages"]] == ["for you"]
    assert await refused(bot.chat_postMessage(channel="#nowhere", text="x")) == "channel_not_found"


async def test_a_bot_under_another_name_is_a_bot_message(bot: AsyncWebClient, channel: str) -> None:
    posted = await bot.chat_postMessage(channel=channel, text="x", username="CI", icon_emoji="ship")
    message = posted["message"]
    assert (message["subtype"], message["username"], message["icons"]) == (
        "bot_message",
        "CI",
        {"emoji": ":ship:"},
    )
    assert "user" not in message
    await bot.chat_update(channel=channel, ts=posted["ts"], text="y")
    await bot.chat_meMessage(channel=channel, text="waves")
    newest = (await bot.conversations_history(channel=channel, limit=1))["messages"][0]
    assert (newest["subtype"], newest["text"]) == ("me_message", "waves")


async def test_pins_are_set_once_listed_and_taken_away(
    bot: AsyncWebClient, server: WorkspaceServer, channel: str
) -> None:
    ts = server.say("demo", "keep this")
    await bot.pins_add(channel=channel, timestamp=ts)
    assert await refused(bot.pins_add(channel=channel, timestamp=ts)) == "already_pinned"
    (item,) = (await bot.pins_list(channel=channel))["items"]
    assert (item["type"], item["message"]["text"], item["created_by"]) == (
        "message",
        "keep this",
        server.workspace.bot.id,
    )
    await bot.pins_remove(channel=channel, timestamp=ts)
    assert await refused(bot.pins_remove(channel=channel, timestamp=ts)) == "no_pin"
    assert (await bot.pins_list(channel=channel))["items"] == []


async def test_what_somebody_reacted_to_is_listed_where_one_may_see_it(
    bot: AsyncWebClient, person: AsyncWebClient, server: WorkspaceServer, channel: str
) -> None:
    seen = server.say("demo", "for all")
    direct = (await person.conversations_open(users=server.add_user("ada").id))["channel"]["id"]
    hidden = server.say(direct, "for two")
    for where, ts in ((channel, seen), (direct, hidden)):
        await person.reactions_add(channel=where, timestamp=ts, name="eyes")
    own = (await person.reactions_list())["items"]
    assert [item["message"]["ts"] for item in own] == [hidden, seen]
    told = (await bot.reactions_list(user=server.workspace.person.id))["items"]
    assert [(item["channel"], item["message"]["text"]) for item in told] == [(channel, "for all")]
    await person.conversations_close(channel=direct)
    refusal = await refused(person.conversations_close(channel=channel))
    assert refusal == "method_not_supported_for_channel_type"


async def test_a_private_channel_is_its_members_own(
    bot: AsyncWebClient, person: AsyncWebClient, server: WorkspaceServer
) -> None:
    made = (await bot.conversations_create(name="war-room", is_private=True))["channel"]
    assert (made["is_private"], made["is_group"], made["is_channel"]) == (True, True, False)
    await bot.chat_postMessage(channel=made["id"], text="the plan")
    outside = [
        person.conversations_info(channel=made["id"]),
        person.conversations_join(channel=made["id"]),
        person.conversations_history(channel=made["id"]),
        person.chat_postMessage(channel="#war-room", text="let me in"),
    ]
    assert [await refused(call) for call in outside] == ["channel_not_found"] * 4
    assert (await person.search_messages(query="plan"))["messages"]["total"] == 0
    listed = await person.conversations_list(types="public_channel,private_channel")
    assert "war-room" not in [channel["name"] for channel in listed["channels"]]
    assert server.add_user("ada").id not in server.workspace.channel(made["id"]).members
    await bot.conversations_invite(channel=made["id"], users=server.workspace.person.id)
    listed = await person.conversations_list(types="private_channel")
    assert [channel["name"] for channel in listed["channels"]] == ["war-room"]
    assert (await person.conversations_history(channel=made["id"]))["messages"]


async def test_people_are_found_by_address_and_tell_their_profile(
    bot: AsyncWebClient, server: WorkspaceServer
) -> None:
    you = server.workspace.person.id
    profile = (await bot.users_profile_get(user=you))["profile"]
    assert (await bot.users_lookupByEmail(email=profile["email"]))["user"]["id"] == you
    assert await refused(bot.users_lookupByEmail(email="nobody@workspace.example")) == "users_not_found"
    assert (await bot.users_getPresence(user=you))["presence"] == "active"
    assert (await bot.usergroups_list())["usergroups"] == []
    assert (await client_for(server, "").api_test(foo="bar"))["args"]["foo"] == "bar"
    assert await refused(bot.api_test(error="my_error")) == "my_error"


async def test_a_file_is_listed_and_deleted_by_its_owner_alone(
    bot: AsyncWebClient, person: AsyncWebClient, channel: str
) -> None:
    shared = await bot.files_upload_v2(channel=channel, content="a,b", filename="table.csv")
    file_id = shared["files"][0]["id"]
    assert [file["id"] for file in (await person.files_list(channel=channel))["files"]] == [file_id]
    assert await refused(person.files_delete(file=file_id)) == "cant_delete_file"
    await bot.files_delete(file=file_id)
    assert (await person.files_list())["files"] == []
    message = (await person.conversations_history(channel=channel, limit=1))["messages"][0]
    assert message["files"] == [{"id": file_id, "mode": "tombstone"}]


async def test_a_stream_grows_ends_and_is_a_message_then(
    bot: AsyncWebClient, server: WorkspaceServer, channel: str
) -> None:
    root = server.say("demo", "tell me")
    to: Any = {"recipient_user_id": server.workspace.person.id, "recipient_team_id": server.workspace.team_id}
    assert await refused(bot.chat_startStream(channel=channel, thread_ts=root)) == "missing_recipient_user_id"
    ts = (await bot.chat_startStream(channel=channel, thread_ts=root, markdown_text="Well", **to))["ts"]
    await bot.chat_appendStream(channel=channel, ts=ts, markdown_text=", **this**")
    task = TaskUpdateChunk(id="1", title="Reading", status="in_progress")
    await bot.chat_appendStream(channel=channel, ts=ts, chunks=[task, MarkdownTextChunk(text=" and that")])
    shown = server.thread("demo", root)[1]
    assert shown["streaming_state"] == "in_progress"
    assert shown["blocks"][0]["text"] == "⏳ Reading\n\nWell, **this** and that"
    assert await refused(bot.chat_update(channel=channel, ts=ts, text="x")) == "streaming_state_conflict"
    feedback: Json = {"type": "section", "text": {"type": "mrkdwn", "text": "Was that good?"}}
    await bot.chat_stopStream(channel=channel, ts=ts, blocks=[feedback])
    shown = server.thread("demo", root)[1]
    assert "streaming_state" not in shown
    assert [block["type"] for block in shown["blocks"]] == ["markdown", "section"]
    late = bot.chat_appendStream(channel=channel, ts=ts, markdown_text="x")
    assert await refused(late) == "message_not_in_streaming_state"


async def test_a_scheduled_message_comes_when_it_is_due_unless_it_is_taken_back() -> None:
    clock = ManualClock()
    async with WorkspaceServer(Options(), clock) as server:
        bot, channel = client_for(server, server.bot_token), server.channel_id("general")
        now_s = int(clock.now().timestamp())
        for wrong, why in ((now_s - 1, "time_in_past"), (now_s + 121 * 86400, "time_too_far")):
            assert await refused(bot.chat_scheduleMessage(channel=channel, text="x", post_at=wrong)) == why
        told = [
            await bot.chat_scheduleMessage(channel="#general", text=text, post_at=now_s + 60)
            for text in ("taken back", "on time")
        ]
        listed = (await bot.chat_scheduledMessages_list())["scheduled_messages"]
        assert [(one["text"], one["post_at"]) for one in listed] == [
            ("taken back", now_s + 60),
            ("on time", now_s + 60),
        ]
        first = told[0]["scheduled_message_id"]
        await bot.chat_deleteScheduledMessage(channel=channel, scheduled_message_id=first)
        await clock.advance(59)
        assert (await bot.conversations_history(channel=channel))["messages"] == []
        await clock.advance(2)
        messages = (await bot.conversations_history(channel=channel))["messages"]
        assert [message["text"] for message in messages] == ["on time"]
        assert (await bot.chat_scheduledMessages_list())["scheduled_messages"] == []


async def heard(socket: ClientConnection, last: str) -> set[str]:
    """The kinds of events that a connection brings until the message ``last``."""
    kinds: set[str] = set()
    async for frame in socket:
        envelope = json.loads(frame)
        if envelope["type"] != "events_api":
            continue
        event = envelope["payload"]["event"]
        if event.get("ts") == last:
            break
        kinds.add(event["type"])
    return kinds


def named(*events: str) -> Subscriptions:
    """What a manifest with these events asks for."""
    settings = {"event_subscriptions": {"bot_events": [*events, "message.im"]}}
    return subscriptions_of(json.dumps({"settings": settings}))


USUAL = {"message", "member_joined_channel"}


@pytest.mark.parametrize(
    ("subscriptions", "kinds"),
    [
        (Subscriptions(), USUAL),
        (Subscriptions(with_opt_in=True), {*USUAL, "file_shared", "team_join", "pin_added"}),
        (subscriptions_of("{}"), {*USUAL, "file_shared", "team_join", "pin_added"}),
        (named("team_join", "message.channels"), {"team_join", "message"}),
        (named("pin_added"), {"pin_added"}),
    ],
)
async def test_an_app_hears_what_its_manifest_names(subscriptions: Subscriptions, kinds: set[str]) -> None:
    async with WorkspaceServer(Options(subscriptions=subscriptions)) as server:
        url = server.call("apps.connections.open", server.app_token)["url"]
        person, channel = client_for(server, server.user_token), server.channel_id("general")
        async with connect(url, proxy=None) as socket:
            newcomer = server.add_user("ada")
            ts = server.say("general", "hello")
            await person.pins_add(channel=channel, timestamp=ts)
            await person.files_upload_v2(channel=channel, content="x", filename="x.txt")
            server.workspace.channel(channel).members.discard(newcomer.id)
            await person.conversations_invite(channel=channel, users=newcomer.id)
            direct = (await person.conversations_open(users=server.workspace.bot.id))["channel"]["id"]
            assert await heard(socket, server.say(direct, "the last word")) == kinds

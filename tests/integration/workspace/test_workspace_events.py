"""The shapes of Socket Mode events, as an app receives them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from codebutler.workspace.server import WorkspaceServer
from codebutler.workspace.state import MethodError


class App:
    """A raw consumer of envelopes that acknowledges each at once."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def event(self) -> dict[str, Any]:
        """The next event_callback payload."""
        envelope = json.loads(await self._socket.recv())
        await self._socket.send(json.dumps({"envelope_id": envelope["envelope_id"]}))
        assert (envelope["type"], envelope["retry_attempt"]) == ("events_api", 0)
        payload: dict[str, Any] = envelope["payload"]
        return payload


@pytest.fixture
async def app(server: WorkspaceServer) -> AsyncIterator[App]:
    url = server.call("apps.connections.open", server.app_token)["url"]
    async with connect(url, proxy=None) as socket:
        assert json.loads(await socket.recv())["type"] == "hello"
        yield App(socket)


async def test_a_persons_message(app: App, server: WorkspaceServer) -> None:
    ts = server.say("demo", "hi")
    payload = await app.event()
    event = payload["event"]
    assert payload["type"] == "event_callback"
    assert payload["authorizations"][0]["user_id"] == server.workspace.bot.id
    assert event.pop("client_msg_id")
    assert event == {
        "type": "message",
        "user": server.workspace.person.id,
        "text": "hi",
        "ts": ts,
        "team": server.workspace.team_id,
        "channel": server.channel_id("demo"),
        "event_ts": ts,
        "channel_type": "channel",
    }


async def test_a_mention_is_two_events_of_one_message(app: App, server: WorkspaceServer) -> None:
    ts = server.say("demo", f"<@{server.workspace.bot.id}> hi")
    message, mention = await app.event(), await app.event()
    assert (message["event"]["type"], mention["event"]["type"]) == ("message", "app_mention")
    assert message["event"]["ts"] == mention["event"]["ts"] == ts
    assert message["event_id"] != mention["event_id"]


async def test_a_thread_reply_names_its_parents_author(app: App, server: WorkspaceServer) -> None:
    root = server.say("demo", "root")
    other = server.add_user("other")
    server.say("demo", "reply", thread_ts=root, user=other)
    await app.event()
    event = (await app.event())["event"]
    assert (event["thread_ts"], event["parent_user_id"]) == (root, server.workspace.person.id)
    assert event["user"] == other.id


async def test_the_bots_own_posts_come_back_marked(app: App, server: WorkspaceServer) -> None:
    channel = server.channel_id("demo")
    server.call("chat.postMessage", server.bot_token, channel=channel, text="<@UCODEBUTLER> me")
    server.say("demo", "next")
    event = (await app.event())["event"]
    assert (event["bot_id"], event["app_id"]) == (server.workspace.bot.bot_id, server.workspace.app_id)
    assert "subtype" not in event
    assert (await app.event())["event"]["text"] == "next"


async def test_an_edit_and_a_deletion(app: App, server: WorkspaceServer) -> None:
    channel = server.channel_id("demo")
    ts = server.say("demo", "before")
    server.call("chat.update", server.user_token, channel=channel, ts=ts, text="after")
    server.call("chat.delete", server.user_token, channel=channel, ts=ts)
    await app.event()
    edit = (await app.event())["event"]
    assert (edit["subtype"], edit["hidden"]) == ("message_changed", True)
    assert (edit["message"]["text"], edit["previous_message"]["text"]) == ("after", "before")
    assert edit["message"]["edited"]["user"] == server.workspace.person.id
    assert edit["ts"] != edit["message"]["ts"] == ts
    deletion = (await app.event())["event"]
    assert (deletion["subtype"], deletion["deleted_ts"]) == ("message_deleted", ts)
    assert deletion["previous_message"]["text"] == "after"


async def test_a_reaction(app: App, server: WorkspaceServer) -> None:
    channel = server.channel_id("demo")
    ts = server.say("demo", "look")
    server.call("reactions.add", server.bot_token, channel=channel, timestamp=ts, name="eyes")
    await app.event()
    event = (await app.event())["event"]
    assert event.pop("event_ts") > ts
    assert event == {
        "type": "reaction_added",
        "user": server.workspace.bot.id,
        "reaction": "eyes",
        "item": {"type": "message", "channel": channel, "ts": ts},
        "item_user": server.workspace.person.id,
    }


async def test_channels_without_the_bot_are_silent(app: App, server: WorkspaceServer) -> None:
    made = server.call("conversations.create", server.user_token, name="private-talk")["channel"]["id"]
    server.say(made, "unheard")
    server.call("conversations.invite", server.user_token, channel=made, users=server.workspace.bot.id)
    server.say(made, "heard")
    created, joined, *seen = [(await app.event())["event"] for _ in range(4)]
    assert (created["type"], joined["type"]) == ("channel_created", "member_joined_channel")
    assert [(event["type"], event.get("subtype")) for event in seen] == [
        ("message", "channel_join"),
        ("message", None),
    ]
    assert seen[0]["inviter"] == joined["inviter"] == server.workspace.person.id
    assert seen[1]["text"] == "heard"


async def test_direct_messages_are_marked(app: App, server: WorkspaceServer) -> None:
    opened = server.call("conversations.open", server.user_token, users=server.workspace.bot.id)
    server.say(opened["channel"]["id"], f"<@{server.workspace.bot.id}> psst")
    server.say("demo", "aloud")
    assert (await app.event())["event"]["channel_type"] == "im"
    assert (await app.event())["event"]["text"] == "aloud"


async def test_a_renamed_and_an_archived_channel(app: App, server: WorkspaceServer) -> None:
    channel = server.channel_id("demo")
    server.call("conversations.rename", server.user_token, channel=channel, name="renamed")
    note, event = (await app.event())["event"], (await app.event())["event"]
    assert (note["subtype"], note["channel"]) == ("channel_name", channel)
    assert (event["type"], event["channel"]["id"], event["channel"]["name"]) == (
        "channel_rename",
        channel,
        "renamed",
    )
    server.call("conversations.archive", server.user_token, channel=channel)
    note, event = (await app.event())["event"], (await app.event())["event"]
    assert (note["subtype"], event["type"]) == ("channel_archive", "channel_archive")
    assert (event["channel"], event["user"]) == (channel, server.workspace.person.id)
    for method in ("chat.postMessage", "conversations.join", "conversations.archive"):
        with pytest.raises(MethodError, match="archived"):
            server.call(method, server.bot_token, channel=channel, text="anybody?")
    listed = server.call("conversations.list", server.bot_token, exclude_archived="true")["channels"]
    assert channel not in [known["id"] for known in listed]
    server.call("conversations.unarchive", server.user_token, channel=channel)
    assert (await app.event())["event"]["subtype"] == "channel_unarchive"
    assert server.say("renamed", "here again")


async def test_the_app_that_is_removed_hears_of_that_and_nothing_more(
    app: App, server: WorkspaceServer
) -> None:
    channel, bot = server.channel_id("demo"), server.workspace.bot.id
    other = server.add_user("other")
    server.call("conversations.leave", other.token, channel=channel)
    note, event = (await app.event())["event"], (await app.event())["event"]
    assert note["subtype"] == "channel_leave"
    assert (event["type"], event["user"], event["channel"]) == ("member_left_channel", other.id, channel)
    server.call("conversations.kick", server.user_token, channel=channel, user=bot)
    event = (await app.event())["event"]
    assert (event["type"], event["channel"]) == ("channel_left", channel)
    assert event["actor_id"] == server.workspace.person.id
    server.say("demo", "unheard")
    server.say("other", "heard")
    assert (await app.event())["event"]["text"] == "heard"
    with pytest.raises(MethodError, match="not_in_channel"):
        server.call("chat.postMessage", server.bot_token, channel=channel, text="hello?")


async def test_the_home_tab_that_somebody_opens(app: App, server: WorkspaceServer) -> None:
    told = server.dialogs.open_home(server.workspace.person, {})
    event = (await app.event())["event"]
    assert (event["type"], event["tab"], event["user"]) == (
        "app_home_opened",
        "home",
        server.workspace.person.id,
    )
    assert event["channel"] == told["channel"]
    assert "view" not in event
    view = {"type": "home", "blocks": [{"type": "divider"}]}
    server.call("views.publish", server.bot_token, user_id=server.workspace.person.id, view=view)
    assert server.dialogs.open_home(server.workspace.person, {})["home"]["blocks"][0]["type"] == "divider"
    assert (await app.event())["event"]["view"]["type"] == "home"

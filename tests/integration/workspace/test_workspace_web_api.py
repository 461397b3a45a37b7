"""Slack's own Web API client against the workspace: posting, reading, files, refusals, faults and limits."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from codebutler.workspace.api import Fault
from codebutler.workspace.server import Options, WorkspaceServer
from tests.integration.workspace.conftest import client_for, refused

METADATA = {"event_type": "op", "event_payload": {"id": "7"}}


async def test_auth_test_tells_who_one_is_and_what_one_may(
    bot: AsyncWebClient, person: AsyncWebClient, server: WorkspaceServer
) -> None:
    told = await bot.auth_test()
    assert told["user_id"] == server.workspace.bot.id
    assert told["bot_id"] == server.workspace.bot.bot_id
    assert "chat:write" in told.headers["x-oauth-scopes"]
    assert "bot_id" not in (await person.auth_test()).data


async def test_tokens_open_only_what_is_theirs(server: WorkspaceServer, bot: AsyncWebClient) -> None:
    assert await refused(client_for(server, "xoxb-wrong").auth_test()) == "invalid_auth"
    assert await refused(client_for(server, "").auth_test()) == "not_authed"
    assert await refused(client_for(server, server.app_token).auth_test()) == "not_allowed_token_type"
    assert await refused(bot.api_call("apps.connections.open")) == "not_allowed_token_type"
    assert await refused(bot.api_call("no.such.method")) == "unknown_method"


async def test_metadata_is_read_only_on_request(bot: AsyncWebClient, channel: str) -> None:
    posted = await bot.chat_postMessage(channel=channel, text="done", metadata=METADATA)
    plain = await bot.conversations_history(channel=channel)
    full = await bot.conversations_history(channel=channel, include_all_metadata=True)
    assert plain["messages"][0]["ts"] == posted["ts"]
    assert "metadata" not in plain["messages"][0]
    assert full["messages"][0]["metadata"] == METADATA


async def test_history_pages_newest_first_without_replies(
    bot: AsyncWebClient, server: WorkspaceServer, channel: str
) -> None:
    roots = [server.say("demo", f"m{number}") for number in range(5)]
    server.say("demo", "reply", thread_ts=roots[0])
    pages = await bot.conversations_history(channel=channel, limit=2)
    messages = [message async for page in pages for message in page["messages"]]
    assert [message["text"] for message in messages] == ["m4", "m3", "m2", "m1", "m0"]
    assert messages[-1]["reply_count"] == 1
    since = await bot.conversations_history(channel=channel, oldest=roots[2], limit=50)
    assert [message["ts"] for message in since["messages"]] == [roots[4], roots[3]]


async def test_replies_page_oldest_first_after_the_root(
    bot: AsyncWebClient, server: WorkspaceServer, channel: str
) -> None:
    root = server.say("demo", "root")
    for number in range(4):
        server.say("demo", f"r{number}", thread_ts=root)
    pages = await bot.conversations_replies(channel=channel, ts=root, limit=2)
    texts = [message["text"] async for page in pages for message in page["messages"]]
    assert texts == ["root", "r0", "r1", "r2", "r3"]
    assert await refused(bot.conversations_replies(channel=channel, ts="1.1")) == "thread_not_found"


async def test_text_without_blocks_removes_the_blocks(bot: AsyncWebClient, channel: str) -> None:
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "x"}}]
    posted = await bot.chat_postMessage(channel=channel, text="x", blocks=blocks, metadata=METADATA)
    await bot.chat_update(channel=channel, ts=posted["ts"], text="y")
    history = await bot.conversations_history(channel=channel, include_all_metadata=True)
    message = history["messages"][0]
    assert (message["text"], message.get("blocks"), message["metadata"]) == ("y", None, METADATA)


async def test_messages_of_others_are_theirs(
    bot: AsyncWebClient, server: WorkspaceServer, channel: str
) -> None:
    ts = server.say("demo", "mine")
    assert await refused(bot.chat_update(channel=channel, ts=ts, text="x")) == "cant_update_message"
    assert await refused(bot.chat_delete(channel=channel, ts=ts)) == "cant_delete_message"
    assert await refused(bot.chat_update(channel=channel, ts="1.1", text="x")) == "message_not_found"


async def test_slacks_limits_on_messages(bot: AsyncWebClient, channel: str) -> None:
    posted = await bot.chat_postMessage(channel=channel, text="x")
    long = "x" * 4001
    assert await refused(bot.chat_update(channel=channel, ts=posted["ts"], text=long)) == "msg_too_long"
    assert await refused(bot.api_call("chat.postMessage", json={"channel": channel})) == "no_text"
    too_many = [{"type": "divider"}] * 51
    assert await refused(bot.chat_postMessage(channel=channel, text="x", blocks=too_many)) == "invalid_blocks"
    markdown = [{"type": "markdown", "text": "x" * 12_001}]
    assert (
        await refused(bot.chat_postMessage(channel=channel, text="x", blocks=markdown))
        == "msg_blocks_too_long"
    )
    assert await refused(bot.chat_postMessage(channel="CNONE", text="x")) == "channel_not_found"


async def test_reactions_are_set_once(bot: AsyncWebClient, server: WorkspaceServer, channel: str) -> None:
    ts = server.say("demo", "look")
    target = {"channel": channel, "timestamp": ts, "name": "eyes"}
    await bot.reactions_add(**target)
    assert await refused(bot.reactions_add(**target)) == "already_reacted"
    got = await bot.reactions_get(channel=channel, timestamp=ts)
    assert got["message"]["reactions"] == [{"name": "eyes", "users": [server.workspace.bot.id], "count": 1}]
    await bot.reactions_remove(**target)
    assert await refused(bot.reactions_remove(**target)) == "no_reaction"


async def test_a_channel_somebody_else_made_must_be_joined(
    bot: AsyncWebClient, person: AsyncWebClient
) -> None:
    made = (await person.conversations_create(name="fresh"))["channel"]["id"]
    assert await refused(person.conversations_create(name="fresh")) == "name_taken"
    assert await refused(person.conversations_create(name="Not Valid")) == "invalid_name_specials"
    assert await refused(bot.chat_postMessage(channel=made, text="x")) == "not_in_channel"
    assert await refused(bot.conversations_history(channel=made)) == "not_in_channel"
    await bot.conversations_join(channel=made)
    again = await bot.conversations_join(channel=made)
    assert again["warning"] == "already_in_channel"
    await bot.chat_postMessage(channel=made, text="x")
    history = await bot.conversations_history(channel=made)
    assert [message.get("subtype") for message in history["messages"]] == [None, "channel_join"]
    pages = await bot.conversations_list(limit=2)
    names = [found["name"] async for page in pages for found in page["channels"]]
    assert names == ["demo", "other", "fresh"]


async def test_a_direct_conversation_is_its_members_own(bot: AsyncWebClient, server: WorkspaceServer) -> None:
    opened = await bot.conversations_open(users=server.workspace.person.id)
    stranger = client_for(server, server.add_user("stranger").token)
    await bot.chat_postMessage(channel=opened["channel"]["id"], text="psst")
    reading = stranger.conversations_history(channel=opened["channel"]["id"])
    assert await refused(reading) == "channel_not_found"


async def test_a_file_goes_up_and_comes_down_for_members_only(
    bot: AsyncWebClient, server: WorkspaceServer, channel: str
) -> None:
    root = server.say("demo", "send it")
    content = bytes(range(256)) * 100
    done = await bot.files_upload_v2(
        channel=channel, thread_ts=root, filename="a b.bin", content=content, initial_comment="here"
    )
    shared = server.thread("demo", root)[1]
    assert (shared["subtype"], shared["text"], shared["files"][0]["id"]) == (
        "file_share",
        "here",
        done["file"]["id"],
    )
    url = shared["files"][0]["url_private_download"]
    assert await download(url, server.bot_token) == (200, "application/octet-stream", content)
    status, kind, page = await download(url, "xoxb-wrong")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert page.lower().startswith(b"<!doctype html")


async def test_a_file_belongs_to_its_owner_and_where_it_was_shared(
    bot: AsyncWebClient, person: AsyncWebClient, server: WorkspaceServer
) -> None:
    private = server.call("conversations.open", server.user_token, users=server.add_user("friend").id)
    sent = await person.files_upload_v2(channel=private["channel"]["id"], filename="a.txt", content="secret")
    assert (await download(sent["file"]["url_private"], server.user_token))[2] == b"secret"
    assert (await download(sent["file"]["url_private"], server.bot_token))[1].startswith("text/html")
    assert await refused(bot.files_info(file=sent["file"]["id"])) == "file_not_found"
    ticket = await person.files_getUploadURLExternal(filename="b.txt", length=1)
    assert await upload(ticket["upload_url"], b"x") == 200
    assert await upload(ticket["upload_url"], b"x") == 404
    stolen = bot.files_completeUploadExternal(files=[{"id": ticket["file_id"], "title": "b"}])
    assert await refused(stolen) == "file_not_found"


async def download(url: str, token: str) -> tuple[int, str, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers={"Authorization": f"Bearer {token}"}) as response,
    ):
        return response.status, response.headers["content-type"], await response.read()


async def test_an_upload_of_another_length_than_announced_is_refused(bot: AsyncWebClient) -> None:
    ticket = await bot.files_getUploadURLExternal(filename="b.txt", length=1)
    assert await upload(ticket["upload_url"], b"xx") == 400
    done = bot.files_completeUploadExternal(files=[{"id": ticket["file_id"], "title": "b"}])
    assert await refused(done) == "file_not_found"


async def upload(url: str, content: bytes) -> int:
    async with aiohttp.ClientSession() as session, session.post(url, data=content) as response:
        return response.status


async def test_a_rate_limit_is_waited_out_by_the_clients_own_handler(
    bot: AsyncWebClient, server: WorkspaceServer, channel: str
) -> None:
    server.faults.add(Fault(method="chat.postMessage", kind="rate_limit", retry_after_s=0))
    bot.retry_handlers.append(AsyncRateLimitErrorRetryHandler(max_retry_count=1))
    assert (await bot.chat_postMessage(channel=channel, text="x"))["ok"]
    server.faults.add(Fault(method="chat.update", kind="rate_limit", retry_after_s=9))
    bot.retry_handlers.clear()
    with pytest.raises(SlackApiError) as caught:
        await bot.chat_update(channel=channel, ts="1.1", text="x")
    assert caught.value.response.status_code == 429
    assert caught.value.response.headers["retry-after"] == "9"


async def test_real_limits_can_be_switched_on() -> None:
    async with WorkspaceServer(Options(with_limits=True)) as server:
        client = client_for(server, server.bot_token)
        channel = server.channel_id("general")
        for _ in range(6):
            await client.chat_postMessage(channel=channel, text="x")
        assert await refused(client.chat_postMessage(channel=channel, text="x")) == "ratelimited"


@pytest.mark.parametrize(("kind", "posted"), [("reset", 0), ("lost", 1), ("hang", 1)])
async def test_an_answer_that_never_comes(
    bot: AsyncWebClient, server: WorkspaceServer, channel: str, kind: Any, posted: int
) -> None:
    server.faults.add(Fault(method="chat.postMessage", kind=kind))
    bot.retry_handlers.clear()
    bot.timeout = 1
    with pytest.raises((aiohttp.ClientError, asyncio.TimeoutError)):
        await bot.chat_postMessage(channel=channel, text="x")
    assert len((await bot.conversations_history(channel=channel))["messages"]) == posted


async def test_faults_are_ordered_over_http_by_a_person(
    bot: AsyncWebClient, server: WorkspaceServer, channel: str
) -> None:
    fault = {"method": "chat.postMessage", "kind": "error", "error": "fatal_error", "times": 2}
    assert await order(server, server.bot_token, fault) == 401
    assert await order(server, server.user_token, {**fault, "surprise": 1}) == 400
    assert await order(server, server.user_token, fault) == 200
    assert await refused(bot.chat_postMessage(channel=channel, text="x")) == "fatal_error"
    assert await refused(bot.chat_postMessage(channel=channel, text="x")) == "fatal_error"
    assert (await bot.chat_postMessage(channel=channel, text="x"))["ok"]


async def order(server: WorkspaceServer, token: str, fault: dict[str, Any]) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{server.context.url}/workspace/faults",
            json=fault,
            headers={"Authorization": f"Bearer {token}"},
        ) as response,
    ):
        return response.status


async def test_an_ephemeral_message_stays_with_one_person(
    bot: AsyncWebClient, server: WorkspaceServer, channel: str
) -> None:
    root = server.say("demo", "root")
    you = server.workspace.person.id
    posted = await bot.chat_postEphemeral(channel=channel, user=you, text="psst", thread_ts=root)
    assert server.context.ephemerals.find(you, posted["message_ts"])
    assert server.context.ephemerals.find("USTRANGER00", posted["message_ts"]) is None
    history = await bot.conversations_history(channel=channel)
    assert [message["text"] for message in history["messages"]] == ["root"]


async def test_search_finds_words_people_and_places(
    bot: AsyncWebClient, person: AsyncWebClient, server: WorkspaceServer, channel: str
) -> None:
    server.say("demo", "The lighthouse needs paint")
    ts = server.say("other", "a lighthouse keeper")
    await bot.chat_postMessage(
        channel=channel, text="x", blocks=[{"type": "markdown", "text": "**lighthouse**"}]
    )
    hidden = server.call("conversations.open", server.bot_token, users=server.add_user("guest").id)
    server.call("chat.postMessage", server.bot_token, channel=hidden["channel"]["id"], text="lighthouse")

    async def found(query: str) -> list[str]:
        told = await person.search_messages(query=query)
        return [match["text"] for match in told["messages"]["matches"]]

    assert await found("LIGHTHOUSE") == ["x", "a lighthouse keeper", "The lighthouse needs paint"]
    assert await found("lighthouse in:#other from:@you") == ["a lighthouse keeper"]
    assert await found("lighthouse paint") == ["The lighthouse needs paint"]
    assert await found("nothing of the kind") == []
    told = await person.search_messages(query="lighthouse", count=1, page=2)
    assert (told["messages"]["total"], told["messages"]["matches"][0]["ts"]) == (3, ts)
    assert await refused(bot.search_messages(query="lighthouse")) == "not_allowed_token_type"


async def test_a_foreign_bot_is_itself(bot: AsyncWebClient, server: WorkspaceServer, channel: str) -> None:
    guest = server.add_user("otherbot", is_bot=True)
    client = client_for(server, guest.token)
    assert (await client.auth_test())["bot_id"] == guest.bot_id
    await client.chat_postMessage(channel=channel, text="beep")
    message = (await bot.conversations_history(channel=channel))["messages"][0]
    assert (message["user"], message["bot_id"], message["app_id"]) == (guest.id, guest.bot_id, guest.app_id)
    assert guest.bot_id != server.workspace.bot.bot_id
    assert (await bot.bots_info(bot=guest.bot_id))["bot"]["name"] == "otherbot"
    view = {"type": "home", "blocks": []}
    assert await refused(client.views_publish(user_id=guest.id, view=view)) == "not_allowed_token_type"


async def test_what_small_bots_ask_on_starting(bot: AsyncWebClient, server: WorkspaceServer) -> None:
    assert (await bot.team_info())["team"]["id"] == server.workspace.team_id
    mine = await bot.users_conversations()
    assert [channel["name"] for channel in mine["channels"]] == ["demo", "other"]
    assert (await bot.emoji_list())["emoji"] == {}
    topic = await bot.conversations_setTopic(channel=server.channel_id("demo"), topic="ships")
    assert topic["channel"]["topic"]["value"] == "ships"


async def test_calls_over_the_limits_are_counted_even_where_they_pass(
    bot: AsyncWebClient, server: WorkspaceServer, channel: str
) -> None:
    for number in range(8):
        await bot.chat_postMessage(channel=channel, text=str(number))
    assert server.limits.violations == {"chat.postMessage": 2}


async def test_how_far_somebody_has_read_is_theirs(
    bot: AsyncWebClient, person: AsyncWebClient, server: WorkspaceServer, channel: str
) -> None:
    first = str((await bot.chat_postMessage(channel=channel, text="one"))["ts"])
    await bot.chat_postMessage(channel=channel, text="two")
    server.say("demo", "my own")
    told = (await person.conversations_info(channel=channel))["channel"]
    assert told["unread_count"] == 2
    await person.conversations_mark(channel=channel, ts=first)
    told = (await person.conversations_info(channel=channel))["channel"]
    assert (told["unread_count"], told["last_read"]) == (1, first)
    assert "last_read" not in (await bot.conversations_info(channel=channel))["channel"]


async def test_a_person_who_posts_again_with_the_same_id_posts_once(
    person: AsyncWebClient, bot: AsyncWebClient, channel: str
) -> None:
    same = {"channel": channel, "text": "once", "client_msg_id": "b6a1"}
    answers = [await person.api_call("chat.postMessage", json=same) for _ in range(2)]
    assert answers[0]["ts"] == answers[1]["ts"]
    # No such thing for apps: Slack has no such argument.
    answers = [await bot.api_call("chat.postMessage", json=same) for _ in range(2)]
    assert answers[0]["ts"] != answers[1]["ts"]
    assert len((await bot.conversations_history(channel=channel))["messages"]) == 3


async def test_an_address_that_a_person_writes_is_enclosed(
    bot: AsyncWebClient, person: AsyncWebClient, channel: str
) -> None:
    written = "see https://a.example/x?y=1&amp;z=2. `https://b.example` &lt;https://c.example&gt; <https://d.example|d>"
    told = (await person.chat_postMessage(channel=channel, text=written))["message"]["text"]
    assert told == (
        "see <https://a.example/x?y=1&amp;z=2>. `https://b.example` &lt;<https://c.example>&gt; <https://d.example|d>"
    )
    handle = (await person.chat_postMessage(channel=channel, text="https://e.example/@you @you `@you`"))[
        "message"
    ]
    assert handle["text"] == "<https://e.example/@you> <@UYOU0000000> `@you`"
    fence = "```\ncurl https://a.example\n```"
    assert (await person.chat_postMessage(channel=channel, text=fence))["message"]["text"] == fence

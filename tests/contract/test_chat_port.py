"""What every ChatPort promises: the one in memory and the Web API on the embedded workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

import pytest

from codebutler.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.model import Post, React, Update, Upload
from codebutler.slack.api import SlackApi
from codebutler.slack.forms import Placed, reason_form
from codebutler.slack.memory import MemoryChat
from codebutler.slack.metadata import op_id_of
from codebutler.slack.port import ChatPort
from codebutler.workspace.faults import Fault
from codebutler.workspace.server import WorkspaceServer

Trouble = Literal["rate_limit", "auth", "unreachable", "lost", "refused"]

METHODS = {
    "identity": "auth.test",
    "post": "chat.postMessage",
    "update": "chat.update",
    "react": "reactions.add",
    "reactions": "reactions.get",
    "upload": "files.completeUploadExternal",
    "history": "conversations.history",
    "replace": "chat.update",
}


class Rig(Protocol):
    """A port, a channel in it, a person who speaks there, and trouble for the next call of a method."""

    @property
    def chat(self) -> ChatPort: ...

    @property
    def channel(self) -> str: ...

    @property
    def person(self) -> str: ...

    def asked_directly(self) -> tuple[str, str]: ...

    def say(self, text: str, thread_ts: str | None = None) -> str: ...

    def reactions(self, ts: str) -> set[str]: ...

    def status(self, ts: str) -> str: ...

    def home(self, user: str) -> list[Any]: ...

    def trigger(self) -> str: ...

    def form(self, user: str) -> dict[str, Any]: ...

    def trouble(self, method: str, trouble: Trouble) -> None: ...


class MemoryRig:
    def __init__(self) -> None:
        self.chat = MemoryChat()
        self.channel = "C1"
        self.person = "U1"

    def say(self, text: str, thread_ts: str | None = None) -> str:
        return self.chat.say(self.channel, "U1", text, thread_ts=thread_ts)

    def asked_directly(self) -> tuple[str, str]:
        """A direct conversation and a message there."""
        return "D1", self.chat.say("D1", "U1", "question")

    def reactions(self, ts: str) -> set[str]:
        return self.chat.marks(self.channel, ts)

    def home(self, user: str) -> list[Any]:
        return self.chat.homes[user]

    def trigger(self) -> str:
        self.chat.triggers["1.2"] = self.person
        return "1.2"

    def form(self, user: str) -> dict[str, Any]:
        return self.chat.forms[user]

    def status(self, ts: str) -> str:
        return self.chat.statuses.get((self.channel, ts), "")

    def trouble(self, method: str, trouble: Trouble) -> None:
        match trouble:
            case "rate_limit":
                self.chat.fail_next(method, ChatRateLimitedError(7))
            case "auth":
                self.chat.fail_next(method, ChatAuthError(code="invalid_auth"))
            case "unreachable":
                self.chat.fail_next(method, ChatUnreachableError("down"))
            case "lost":
                self.chat.deliver_then_fail(method, ChatOutcomeUnknownError("lost"))
            case "refused":
                self.chat.fail_next(method, ChatError(code="is_archived"))


class ApiRig:
    def __init__(self, server: WorkspaceServer, api: SlackApi) -> None:
        self.server = server
        self.chat = api
        self.channel = server.channel_id("general")
        self.person = server.workspace.person.id

    def say(self, text: str, thread_ts: str | None = None) -> str:
        return self.server.say("general", text, thread_ts)

    def asked_directly(self) -> tuple[str, str]:
        """A direct conversation and a message there."""
        place = self.server.workspace.open_im(self.person, self.server.workspace.bot.id).id
        said = self.server.call("chat.postMessage", self.server.user_token, channel=place, text="question")
        return place, str(said["ts"])

    def reactions(self, ts: str) -> set[str]:
        (message, *_) = self.server.thread("general", ts)
        return {reaction["name"] for reaction in message.get("reactions", ())}

    def status(self, ts: str) -> str:
        shown = self.server.house.statuses.get((self.channel, ts))
        return shown.text if shown else ""

    def home(self, user: str) -> list[Any]:
        view = self.server.house.views.home(user)
        return view.blocks if view else []

    def trigger(self) -> str:
        return self.server.house.views.trigger(self.person)

    def form(self, user: str) -> dict[str, Any]:
        return self.server.house.views.stack(user)[-1].given

    def trouble(self, method: str, trouble: Trouble) -> None:
        name = METHODS[method]
        match trouble:
            case "rate_limit":
                self.server.faults.add(Fault(method=name, kind="rate_limit", retry_after_s=7))
            case "auth":
                self.server.faults.add(Fault(method=name, kind="error", error="invalid_auth"))
            case "unreachable":
                self.server.faults.add(Fault(method=name, kind="status", status=503))
            case "lost":
                self.server.faults.add(Fault(method=name, kind="lost"))
            case "refused":
                self.server.faults.add(Fault(method=name, kind="error", error="is_archived"))


@pytest.fixture(params=["memory", "api"])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    if request.param == "memory":
        yield MemoryRig()
        return
    async with WorkspaceServer() as server, SlackApi(server.bot_token, base_url=server.api_url) as api:
        yield ApiRig(server, api)


async def everything(rig: Rig, thread_ts: str | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = await rig.chat.history(rig.channel, thread_ts=thread_ts, cursor=cursor)
        found += page.messages
        if not (cursor := page.next_cursor):
            return found


async def test_knows_itself(rig: Rig) -> None:
    me = await rig.chat.identity()
    assert me.user_id
    assert me.bot_id
    assert me.team_id


async def test_a_post_is_in_the_history_with_its_operation_and_its_author(rig: Rig) -> None:
    ts = await rig.chat.post(rig.channel, Post(text="hello"), "op-1")
    (message,) = [m for m in await everything(rig) if m["ts"] == ts]
    assert message["text"] == "hello"
    assert op_id_of(message) == "op-1"
    assert message["bot_id"] == (await rig.chat.identity()).bot_id


async def test_a_reply_is_in_its_thread_only(rig: Rig) -> None:
    root = rig.say("question")
    ts = await rig.chat.post(rig.channel, Post(text="answer", thread_ts=root), "op-1")
    assert [m["ts"] for m in await everything(rig, root)] == [root, ts]
    assert ts not in [m["ts"] for m in await everything(rig)]


async def test_blocks_travel(rig: Rig) -> None:
    block = {"type": "section", "text": {"type": "mrkdwn", "text": "*x*"}}
    ts = await rig.chat.post(rig.channel, Post(text="x", blocks=(block,)), "op-1")
    (message,) = [m for m in await everything(rig) if m["ts"] == ts]
    assert message["blocks"][0]["text"]["text"] == "*x*"


async def test_what_is_for_one_user_is_in_nobodys_history(rig: Rig) -> None:
    rig.say("question")
    assert await rig.chat.post(rig.channel, Post(text="psst", only_for=rig.person), "op-1")
    assert "psst" not in str(await everything(rig))


async def test_an_edit_changes_the_text_and_keeps_the_operation_of_the_post(rig: Rig) -> None:
    ts = await rig.chat.post(rig.channel, Post(text="working"), "op-1")
    await rig.chat.update(rig.channel, Update(target_ts=ts, text="done"), "op-2")
    (message,) = [m for m in await everything(rig) if m["ts"] == ts]
    assert message["text"] == "done"
    assert op_id_of(message) == "op-1"


async def test_an_edit_without_blocks_removes_the_old_ones(rig: Rig) -> None:
    block = {"type": "section", "text": {"type": "mrkdwn", "text": "*old*"}}
    ts = await rig.chat.post(rig.channel, Post(text="old", blocks=(block,)), "op-1")
    await rig.chat.update(rig.channel, Update(target_ts=ts, text="new"), "op-2")
    (message,) = [m for m in await everything(rig) if m["ts"] == ts]
    assert "*old*" not in str(message)


async def test_reactions_come_and_go_and_twice_is_once(rig: Rig) -> None:
    ts = rig.say("question")
    for _ in range(2):
        await rig.chat.react(rig.channel, React(target_ts=ts, name="eyes"))
    assert rig.reactions(ts) == {"eyes"}
    for _ in range(2):
        await rig.chat.react(rig.channel, React(target_ts=ts, name="eyes", remove=True))
    assert rig.reactions(ts) == set()


async def test_tells_who_set_which_reaction(rig: Rig) -> None:
    ts = rig.say("question")
    assert await rig.chat.reactions(rig.channel, ts) == {}
    await rig.chat.react(rig.channel, React(target_ts=ts, name="eyes"))
    me = await rig.chat.identity()
    assert await rig.chat.reactions(rig.channel, ts) == {"eyes": frozenset({me.user_id})}


async def test_a_failed_look_at_the_reactions_may_simply_be_done_again(rig: Rig) -> None:
    ts = rig.say("question")
    rig.trouble("reactions", "unreachable")
    with pytest.raises(ChatUnreachableError):
        await rig.chat.reactions(rig.channel, ts)
    assert await rig.chat.reactions(rig.channel, ts) == {}


async def test_a_status_is_shown_under_a_thread_until_we_speak_there(rig: Rig) -> None:
    ts = rig.say("work")
    await rig.chat.show_status(rig.channel, ts, "is working")
    assert rig.status(ts) == "is working"
    await rig.chat.show_status(rig.channel, ts, "")
    assert rig.status(ts) == ""
    await rig.chat.show_status(rig.channel, ts, "is working")
    await rig.chat.post(rig.channel, Post(text="done", thread_ts=ts), "op-1")
    assert rig.status(ts) == ""


async def test_a_status_of_no_thread_is_refused(rig: Rig) -> None:
    with pytest.raises(ChatError):
        await rig.chat.show_status(rig.channel, "1.000001", "is working")


async def test_an_upload_shows_in_its_thread_with_name_title_and_size(rig: Rig) -> None:
    root = rig.say("question")
    upload = Upload(filename="a.md", content="zwölf".encode(), title="A", comment="see", thread_ts=root)
    file_id = await rig.chat.upload(rig.channel, upload)
    (message,) = [m for m in await everything(rig, root) if m.get("files")]
    (file,) = message["files"]
    assert (file["id"], file["name"], file["title"], file["size"]) == (file_id, "a.md", "A", 6)
    assert message["text"] == "see"


async def test_history_begins_after_oldest_newest_first_threads_oldest_first(rig: Rig) -> None:
    one, two, three = (rig.say(text) for text in "123")
    page = await rig.chat.history(rig.channel, oldest=one)
    assert [m["ts"] for m in page.messages] == [three, two]
    replies = [rig.say("r", one) for _ in range(2)]
    page = await rig.chat.history(rig.channel, thread_ts=one)
    assert [m["ts"] for m in page.messages] == [one, *replies]


async def test_unknown_threads_and_messages_are_refused(rig: Rig) -> None:
    nowhere = "1000000000.000001"
    with pytest.raises(ChatError) as caught:
        await rig.chat.update(rig.channel, Update(target_ts=nowhere, text="x"), "op-1")
    assert caught.value.code == "message_not_found"
    with pytest.raises(ChatError) as caught:
        await rig.chat.react(rig.channel, React(target_ts=nowhere, name="eyes"))
    assert caught.value.code == "message_not_found"
    with pytest.raises(ChatError) as caught:
        await rig.chat.reactions(rig.channel, nowhere)
    assert caught.value.code == "message_not_found"
    with pytest.raises(ChatError) as caught:
        await rig.chat.history(rig.channel, thread_ts=nowhere)
    assert caught.value.code == "thread_not_found"


async def test_a_rate_limit_says_how_long(rig: Rig) -> None:
    rig.trouble("post", "rate_limit")
    with pytest.raises(ChatRateLimitedError) as caught:
        await rig.chat.post(rig.channel, Post(text="x"), "op-1")
    assert caught.value.retry_after_s == 7
    assert await rig.chat.post(rig.channel, Post(text="x"), "op-1")


@pytest.mark.parametrize("method", ["identity", "post"])
async def test_a_refused_token_is_told_apart(rig: Rig, method: str) -> None:
    rig.trouble(method, "auth")
    with pytest.raises(ChatAuthError) as caught:
        await (
            rig.chat.identity() if method == "identity" else rig.chat.post(rig.channel, Post(text="x"), "o")
        )
    assert caught.value.code == "invalid_auth"


async def test_a_refusal_carries_its_code(rig: Rig) -> None:
    rig.trouble("post", "refused")
    with pytest.raises(ChatError) as caught:
        await rig.chat.post(rig.channel, Post(text="x"), "op-1")
    assert caught.value.code == "is_archived"
    assert type(caught.value) is ChatError


async def test_a_failed_reading_may_simply_be_done_again(rig: Rig) -> None:
    rig.trouble("history", "unreachable")
    with pytest.raises(ChatUnreachableError):
        await rig.chat.history(rig.channel)
    assert await rig.chat.history(rig.channel)


async def test_a_lost_answer_leaves_the_outcome_open_and_the_post_findable(rig: Rig) -> None:
    rig.trouble("post", "lost")
    with pytest.raises(ChatOutcomeUnknownError):
        await rig.chat.post(rig.channel, Post(text="once"), "op-1")
    assert [op_id_of(m) for m in await everything(rig) if m["text"] == "once"] == ["op-1"]


async def test_a_lost_answer_to_an_upload_leaves_the_outcome_open(rig: Rig) -> None:
    rig.trouble("upload", "lost")
    with pytest.raises(ChatOutcomeUnknownError):
        await rig.chat.upload(rig.channel, Upload(filename="a.txt", content=b"x"))
    assert [m["files"][0]["name"] for m in await everything(rig) if m.get("files")] == ["a.txt"]


async def test_a_home_is_published_and_replaced(rig: Rig) -> None:
    for words in ("first", "second"):
        block = {"type": "section", "text": {"type": "mrkdwn", "text": words}}
        await rig.chat.publish_home(rig.person, [block])
    assert [block["text"]["text"] for block in rig.home(rig.person)] == ["second"]


async def test_a_form_opens_once_for_whoever_may_open_it(rig: Rig) -> None:
    form = reason_form(Placed(channel=rig.channel, message_ts="1.1", value="r1"))
    trigger_id = rig.trigger()
    await rig.chat.open_form(trigger_id, form)
    assert rig.form(rig.person)["title"]["text"] == "Deny with a reason"
    with pytest.raises(ChatError) as refused:
        await rig.chat.open_form(trigger_id, form)
    assert refused.value.code in ("expired_trigger_id", "exchanged_trigger_id")


async def replies(rig: Rig, place: str, root: str) -> list[dict[str, Any]]:
    return list((await rig.chat.history(place, thread_ts=root)).messages[1:])


async def test_a_stream_grows_and_bears_no_operation(rig: Rig) -> None:
    place, root = rig.asked_directly()
    ts = await rig.chat.start_stream(place, root, "It is")
    await rig.chat.append_stream(place, ts, " all fine")
    (message,) = await replies(rig, place, root)
    assert (message["ts"], message["text"], op_id_of(message)) == (ts, "It is all fine", None)
    assert message["bot_id"] == (await rig.chat.identity()).bot_id


async def test_a_stream_that_has_ended_takes_no_more(rig: Rig) -> None:
    place, root = rig.asked_directly()
    ts = await rig.chat.start_stream(place, root, "It is")
    await rig.chat.stop_stream(place, ts)
    for late in (rig.chat.append_stream(place, ts, " more"), rig.chat.stop_stream(place, ts)):
        with pytest.raises(ChatError) as refused:
            await late
        assert refused.value.code == "message_not_in_streaming_state"


async def test_an_answer_takes_a_stream_s_place_once_it_has_ended(rig: Rig) -> None:
    place, root = rig.asked_directly()
    post = Post(text="Fine.", thread_ts=root, blocks=({"type": "markdown", "text": "Fine."},))
    ts = await rig.chat.start_stream(place, root, "It is")
    with pytest.raises(ChatError) as refused:
        await rig.chat.replace(place, ts, post, "op-1")
    assert refused.value.code == "streaming_state_conflict"
    await rig.chat.stop_stream(place, ts)
    for _ in range(2):
        await rig.chat.replace(place, ts, post, "op-1")
    (message,) = await replies(rig, place, root)
    assert (message["ts"], message["text"], op_id_of(message)) == (ts, "Fine.", "op-1")
    assert "It is" not in str(message)


async def test_a_lost_answer_to_the_taking_of_a_place_leaves_it_findable(rig: Rig) -> None:
    place, root = rig.asked_directly()
    ts = await rig.chat.start_stream(place, root, "It is")
    await rig.chat.stop_stream(place, ts)
    rig.trouble("replace", "lost")
    with pytest.raises(ChatOutcomeUnknownError):
        await rig.chat.replace(place, ts, Post(text="Fine.", thread_ts=root), "op-1")
    assert [op_id_of(message) for message in await replies(rig, place, root)] == ["op-1"]


async def test_a_message_that_was_taken_away_is_gone(rig: Rig) -> None:
    place, root = rig.asked_directly()
    ts = await rig.chat.start_stream(place, root, "It is")
    await rig.chat.delete(place, ts)
    assert await replies(rig, place, root) == []
    with pytest.raises(ChatError) as refused:
        await rig.chat.delete(place, ts)
    assert refused.value.code == "message_not_found"

"""The port to Slack when it refuses, is at its limit, or loses an answer: each is told apart."""

from __future__ import annotations

import pytest

from codebutler.chat.slack.metadata import op_id_of
from codebutler.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.message import said
from codebutler.model import Post, React, Update, Upload
from tests.contract.chats import Rig, everything, replies, rig

__all__ = ["rig"]


async def test_a_status_of_no_thread_is_refused(rig: Rig) -> None:
    with pytest.raises(ChatError):
        await rig.chat.show_status(rig.channel, "1.000001", "is working")


async def test_unknown_threads_and_messages_are_refused(rig: Rig) -> None:
    nowhere = "1000000000.000001"
    with pytest.raises(ChatError) as caught:
        await rig.chat.update(rig.channel, Update(target_ts=nowhere, message=said("x")), "op-1")
    assert caught.value.code == "message_not_found"
    with pytest.raises(ChatError) as caught:
        await rig.chat.react(rig.channel, React(target_ts=nowhere, name="eyes"))
    assert caught.value.code == "message_not_found"
    with pytest.raises(ChatError) as caught:
        await rig.chat.history(rig.channel, thread_ts=nowhere)
    assert caught.value.code == "thread_not_found"


async def test_a_rate_limit_says_how_long(rig: Rig) -> None:
    rig.trouble("post", "rate_limit")
    with pytest.raises(ChatRateLimitedError) as caught:
        await rig.chat.post(rig.channel, Post(message=said("x")), "op-1")
    assert caught.value.retry_after_s == 7
    assert await rig.chat.post(rig.channel, Post(message=said("x")), "op-1")


@pytest.mark.parametrize("method", ["identity", "post"])
async def test_a_refused_token_is_told_apart(rig: Rig, method: str) -> None:
    rig.trouble(method, "auth")
    with pytest.raises(ChatAuthError) as caught:
        await (
            rig.chat.identity()
            if method == "identity"
            else rig.chat.post(rig.channel, Post(message=said("x")), "o")
        )
    assert caught.value.code == "invalid_auth"


async def test_a_refusal_carries_its_code(rig: Rig) -> None:
    rig.trouble("post", "refused")
    with pytest.raises(ChatError) as caught:
        await rig.chat.post(rig.channel, Post(message=said("x")), "op-1")
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
        await rig.chat.post(rig.channel, Post(message=said("once")), "op-1")
    assert [op_id_of(m) for m in await everything(rig) if m["text"] == "once"] == ["op-1"]


async def test_an_upload_whose_bytes_may_be_lost_shows_nothing_and_may_be_done_again(rig: Rig) -> None:
    rig.trouble("upload", "unreachable")
    with pytest.raises(ChatUnreachableError):
        await rig.chat.upload(Upload(filename="a.txt", content=b"x"))
    assert [m for m in await everything(rig) if m.get("files")] == []


async def test_a_lost_answer_to_an_upload_leaves_the_outcome_open(rig: Rig) -> None:
    upload = Upload(filename="a.txt", content=b"x")
    file_id = await rig.chat.upload(upload)
    rig.trouble("share", "lost")
    with pytest.raises(ChatOutcomeUnknownError):
        await rig.chat.share(rig.channel, upload, file_id)
    assert await rig.chat.shared_in(file_id) == frozenset({rig.channel})
    assert [m["files"][0]["name"] for m in await everything(rig) if m.get("files")] == ["a.txt"]


async def test_a_lost_answer_to_the_taking_of_a_place_leaves_it_findable(rig: Rig) -> None:
    place, root = rig.asked_directly()
    ts = await rig.chat.start_stream(place, root, "It is")
    await rig.chat.stop_stream(place, ts)
    rig.trouble("replace", "lost")
    with pytest.raises(ChatOutcomeUnknownError):
        await rig.chat.replace(place, ts, Post(message=said("Fine."), thread_ts=root), "op-1")
    assert [op_id_of(message) for message in await replies(rig, place, root)] == ["op-1"]

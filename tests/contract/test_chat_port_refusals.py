"""The port to a chat when it refuses, is at its limit, or loses an answer: each is told apart."""

from __future__ import annotations

import pytest

from codebutler.chat.slack.answers import op_id_of
from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.domain.message import said
from codebutler.domain.model import Post, React, Update, Upload
from tests.contract.chats import AbleRig, Rig, able, everything, replies, rig

__all__ = ["able", "rig"]


async def test_a_status_of_no_thread_is_refused(able: AbleRig) -> None:
    with pytest.raises(ChatError):
        await able.chat.show_status(able.channel, "1.000001", "is working")


async def test_unknown_messages_are_refused(rig: Rig) -> None:
    with pytest.raises(ChatError) as caught:
        await rig.chat.update(rig.channel, Update(target=rig.nowhere, message=said("x")), "op-1")
    assert caught.value.code == "message_not_found"
    with pytest.raises(ChatError) as caught:
        await rig.chat.react(rig.channel, React(target=rig.nowhere, mark="working"))
    assert caught.value.code == "message_not_found"


async def test_unknown_threads_have_no_history(able: AbleRig) -> None:
    with pytest.raises(ChatError) as caught:
        await able.chat.history(able.channel, thread=able.nowhere)
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
    assert caught.value.code


async def test_a_refusal_carries_its_code(rig: Rig) -> None:
    rig.trouble("post", "refused")
    with pytest.raises(ChatError) as caught:
        await rig.chat.post(rig.channel, Post(message=said("x")), "op-1")
    assert caught.value.code == rig.refusal
    assert type(caught.value) is ChatError


async def test_a_failed_reading_may_simply_be_done_again(able: AbleRig) -> None:
    able.trouble("history", "unreachable")
    with pytest.raises(ChatUnreachableError):
        await able.chat.history(able.channel)
    assert await able.chat.history(able.channel)


async def test_a_lost_answer_leaves_the_outcome_open(rig: Rig) -> None:
    rig.trouble("post", "lost")
    with pytest.raises(ChatOutcomeUnknownError):
        await rig.chat.post(rig.channel, Post(message=said("once")), "op-1")
    assert [message.text for message in await rig.shown()] == ["once"]


async def test_a_post_whose_answer_is_lost_is_findable(able: AbleRig) -> None:
    able.trouble("post", "lost")
    with pytest.raises(ChatOutcomeUnknownError):
        await able.chat.post(able.channel, Post(message=said("once")), "op-1")
    assert [op_id_of(m) for m in await everything(able.chat, able.channel) if m["text"] == "once"] == ["op-1"]


async def test_an_upload_whose_bytes_may_be_lost_shows_nothing_and_may_be_done_again(able: AbleRig) -> None:
    able.trouble("upload", "unreachable")
    with pytest.raises(ChatUnreachableError):
        await able.chat.upload(Upload(filename="a.txt", content=b"x"))
    assert await able.shown() == []


async def test_a_lost_answer_to_an_upload_leaves_the_outcome_open(able: AbleRig) -> None:
    upload = Upload(filename="a.txt", content=b"x")
    file_id = await able.chat.upload(upload)
    able.trouble("share", "lost")
    with pytest.raises(ChatOutcomeUnknownError):
        await able.chat.share(able.channel, upload, file_id)
    assert await able.chat.shared_in(file_id) == frozenset({able.channel})
    assert [m["files"][0]["name"] for m in await everything(able.chat, able.channel) if m.get("files")] == [
        "a.txt"
    ]


async def test_a_lost_answer_to_the_taking_of_a_place_leaves_it_findable(able: AbleRig) -> None:
    place, root = able.asked_directly()
    ts = await able.chat.start_stream(place, root, "It is")
    await able.chat.stop_stream(place, ts)
    able.trouble("replace", "lost")
    with pytest.raises(ChatOutcomeUnknownError):
        await able.chat.replace(place, ts, Post(message=said("Fine."), thread=root), "op-1")
    assert [op_id_of(message) for message in await replies(able, place, root)] == ["op-1"]

"""The port to Slack: messages that grow while they are written."""

from __future__ import annotations

import pytest

from codebutler.chat.slack.answers import op_id_of
from codebutler.domain.errors import (
    ChatError,
)
from codebutler.domain.message import Message
from codebutler.domain.model import Post
from tests.contract.chats import AbleRig, able, replies

__all__ = ["able"]


async def test_a_stream_grows_and_bears_no_operation(able: AbleRig) -> None:
    place, root = able.asked_directly()
    ts = await able.chat.start_stream(place, root, "It is")
    await able.chat.append_stream(place, ts, " all fine")
    (message,) = await replies(able, place, root)
    assert (message["ts"], message["text"], op_id_of(message)) == (ts, "It is all fine", None)
    assert message["bot_id"] == (await able.chat.identity()).bot_id


async def test_a_stream_that_has_ended_takes_no_more(able: AbleRig) -> None:
    place, root = able.asked_directly()
    ts = await able.chat.start_stream(place, root, "It is")
    await able.chat.stop_stream(place, ts)
    for late in (able.chat.append_stream(place, ts, " more"), able.chat.stop_stream(place, ts)):
        with pytest.raises(ChatError) as refused:
            await late
        assert refused.value.code == "message_not_in_streaming_state"


async def test_an_answer_takes_a_stream_s_place_once_it_has_ended(able: AbleRig) -> None:
    place, root = able.asked_directly()
    post = Post(message=Message(markdown="Fine.", is_foreign=True), thread=root)
    ts = await able.chat.start_stream(place, root, "It is")
    with pytest.raises(ChatError) as refused:
        await able.chat.replace(place, ts, post, "op-1")
    assert refused.value.code == "streaming_state_conflict"
    await able.chat.stop_stream(place, ts)
    for _ in range(2):
        await able.chat.replace(place, ts, post, "op-1")
    (message,) = await replies(able, place, root)
    assert (message["ts"], message["text"], op_id_of(message)) == (ts, "Fine.", "op-1")
    assert "It is" not in str(message)


async def test_a_message_that_was_taken_away_is_gone(able: AbleRig) -> None:
    place, root = able.asked_directly()
    ts = await able.chat.start_stream(place, root, "It is")
    await able.chat.delete(place, ts)
    assert await replies(able, place, root) == []
    with pytest.raises(ChatError) as refused:
        await able.chat.delete(place, ts)
    assert refused.value.code == "message_not_found"

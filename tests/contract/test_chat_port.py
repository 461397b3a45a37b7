"""The port to a chat: what is posted, changed and shown, the same in memory, in Slack and in Telegram."""

from __future__ import annotations

import pytest

from codebutler.chat.layout import Placed, ReasonForm, Section
from codebutler.chat.port import CAPABILITIES, Capabilities
from codebutler.chat.slack.answers import op_id_of
from codebutler.domain.errors import ChatError
from codebutler.domain.message import Button, said
from codebutler.domain.model import Post, React, Update, Upload
from tests.contract.chats import AbleRig, Rig, Shown, able, everything, rig
from tests.memory_chat import MemoryChat

__all__ = ["able", "rig"]


async def test_knows_itself(rig: Rig) -> None:
    me = await rig.chat.identity()
    assert me.user_id
    assert me.bot_id
    assert me.team_id


async def test_a_post_is_shown_under_the_ts_that_is_told(rig: Rig) -> None:
    ts = await rig.chat.post(rig.channel, Post(message=said("hello")), "op-1")
    assert await rig.shown() == [Shown(ts, "hello")]


async def test_what_we_say_sorts_among_what_people_say(rig: Rig) -> None:
    before = rig.say("question")
    ts = await rig.chat.post(rig.channel, Post(message=said("answer"), thread=before), "op-1")
    assert before < ts < rig.say("thanks")


async def test_a_post_is_in_the_history_with_its_operation_and_its_author(able: AbleRig) -> None:
    ts = await able.chat.post(able.channel, Post(message=said("hello")), "op-1")
    (message,) = [m for m in await everything(able.chat, able.channel) if m["ts"] == ts]
    assert op_id_of(message) == "op-1"
    assert message["bot_id"] == (await able.chat.identity()).bot_id


async def test_a_chat_says_what_it_has_beside_the_rest(able: AbleRig) -> None:
    whole = dict.fromkeys(CAPABILITIES, able.chat)
    assert able.chat.capabilities == Capabilities(**whole)


async def test_a_chat_may_have_nothing_beside_the_rest() -> None:
    assert MemoryChat(lacks=CAPABILITIES).capabilities == Capabilities()


async def test_a_file_is_given_to_whoever_asks_in_a_channel_that_shows_it(able: AbleRig) -> None:
    upload = Upload(filename="a.md", content=b"a")
    file_id = await able.chat.upload(upload)
    pieces: list[bytes] = []

    async def take(piece: bytes) -> None:
        pieces.append(piece)

    for channel in (able.channel, "C0ELSEWHERE"):
        with pytest.raises(ChatError, match="file_not_found"):
            await able.chat.fetch(channel, file_id, take)
    await able.chat.share(able.channel, upload, file_id)
    told = await able.chat.fetch(able.channel, file_id, take)
    assert (told.file.name, b"".join(pieces)) == ("a.md", b"a")


async def test_our_own_messages_are_told_apart_from_what_others_say(able: AbleRig) -> None:
    root = able.say("question")
    answer = await able.chat.post(able.channel, Post(message=said("answer"), thread=root), "op-1")
    upload = Upload(filename="a.md", content=b"a", thread=root)
    await able.chat.share(able.channel, upload, await able.chat.upload(upload))
    able.say("thanks", root)
    text, file = (await able.chat.own(able.channel, thread=root)).messages
    assert (text.ref, text.op_id, text.is_file) == (answer, "op-1", False)
    assert (file.op_id, file.is_file) == ("", True)
    assert (await able.chat.own(able.channel)).messages == ()


async def test_a_reply_is_in_its_thread_only(rig: Rig) -> None:
    root = rig.say("question")
    ts = await rig.chat.post(rig.channel, Post(message=said("answer"), thread=root), "op-1")
    assert await rig.shown() == [Shown(ts, "answer", thread=root)]


STOP = Button("Stop", "codebutler.stop", "t1")


async def test_buttons_travel(rig: Rig) -> None:
    await rig.chat.post(rig.channel, Post(message=said("x", STOP)), "op-1")
    (message,) = await rig.shown()
    assert (message.text, message.buttons) == ("x", ("Stop",))


async def test_what_is_for_one_user_is_in_nobodys_history(able: AbleRig) -> None:
    able.say("question")
    assert await able.chat.whisper(able.channel, Post(message=said("psst"), only_for=able.person))
    assert "psst" not in str(await everything(able.chat, able.channel))


async def test_an_edit_changes_the_text_and_is_the_same_when_it_is_repeated(rig: Rig) -> None:
    ts = await rig.chat.post(rig.channel, Post(message=said("working")), "op-1")
    for _ in range(2):
        await rig.chat.update(rig.channel, Update(target=ts, message=said("done")), "op-2")
        assert await rig.shown() == [Shown(ts, "done")]


async def test_an_edit_keeps_the_operation_of_the_post(able: AbleRig) -> None:
    ts = await able.chat.post(able.channel, Post(message=said("working")), "op-1")
    await able.chat.update(able.channel, Update(target=ts, message=said("done")), "op-2")
    (message,) = [m for m in await everything(able.chat, able.channel) if m["ts"] == ts]
    assert op_id_of(message) == "op-1"


async def test_an_edit_without_buttons_removes_the_old_ones(rig: Rig) -> None:
    ts = await rig.chat.post(rig.channel, Post(message=said("old", STOP)), "op-1")
    await rig.chat.update(rig.channel, Update(target=ts, message=said("new")), "op-2")
    assert await rig.shown() == [Shown(ts, "new")]


async def test_reactions_come_and_go_and_twice_is_once(rig: Rig) -> None:
    ts = rig.say("question")
    for _ in range(2):
        await rig.chat.react(rig.channel, React(target=ts, mark="working"))
    assert rig.reactions(ts) == {"working"}
    for _ in range(2):
        await rig.chat.react(rig.channel, React(target=ts, mark="working", remove=True))
    assert rig.reactions(ts) == set()


async def test_a_status_is_shown_under_a_thread_until_we_speak_there(able: AbleRig) -> None:
    ts = able.say("work")
    await able.chat.show_status(able.channel, ts, "is working")
    assert able.status(ts) == "is working"
    await able.chat.show_status(able.channel, ts, "")
    assert able.status(ts) == ""
    await able.chat.show_status(able.channel, ts, "is working")
    await able.chat.post(able.channel, Post(message=said("done"), thread=ts), "op-1")
    assert able.status(ts) == ""


async def test_an_upload_shows_in_its_thread_with_name_size_and_comment(rig: Rig) -> None:
    root = rig.say("question")
    upload = Upload(filename="a.md", content="zwölf".encode(), title="A", comment="see", thread=root)
    file_id = await rig.chat.upload(upload)
    assert await rig.shown() == []
    await rig.chat.share(rig.channel, upload, file_id)
    (message,) = await rig.shown()
    assert (message.thread, message.files, message.text.split("\n")[0]) == (root, (("a.md", 6),), "see")


async def test_a_file_is_shared_once_and_tells_where(able: AbleRig) -> None:
    upload = Upload(filename="a.md", content=b"a")
    file_id = await able.chat.upload(upload)
    assert not await able.chat.shared_in(file_id)
    await able.chat.share(able.channel, upload, file_id)
    assert await able.chat.shared_in(file_id) == frozenset({able.channel})
    with pytest.raises(ChatError, match="file_not_found"):
        await able.chat.share(able.channel, upload, file_id)
    with pytest.raises(ChatError, match="file_not_found"):
        await able.chat.share(able.channel, upload, "F0000000000")
    assert await able.chat.shared_in("F0000000000") is None


async def test_history_begins_after_a_moment_newest_first_threads_oldest_first(able: AbleRig) -> None:
    one, two, three = (able.say(text) for text in "123")
    page = await able.chat.history(able.channel, since_s=float(one))
    assert [m.ref for m in page.messages] == [three, two]
    replies = [able.say("r", one) for _ in range(2)]
    page = await able.chat.history(able.channel, thread=one)
    assert [m.ref for m in page.messages] == [one, *replies]


async def test_a_home_is_published_and_replaced(able: AbleRig) -> None:
    for words in ("first", "second"):
        await able.chat.publish_home(able.person, [Section(words)])
    assert [block["text"]["text"] for block in able.home(able.person)] == ["second"]


async def test_a_form_opens_once_for_whoever_may_open_it(able: AbleRig) -> None:
    form = ReasonForm(Placed(channel=able.channel, message="1.1", value="r1"))
    trigger_id = able.trigger()
    await able.chat.open_form(trigger_id, form)
    assert able.form(able.person) == "Deny with a reason"
    with pytest.raises(ChatError) as refused:
        await able.chat.open_form(trigger_id, form)
    assert refused.value.code in ("expired_trigger_id", "exchanged_trigger_id")

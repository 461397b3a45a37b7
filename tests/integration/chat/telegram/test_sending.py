"""What we say in Telegram: in its conversation, in parts that fit, and not twice where that can be known."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.chat import TelegramChat
from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.domain.message import ALLOW_ACTION, Button, Message, said
from codebutler.domain.model import Post, React, Update, Upload
from tests.notes import Notes
from tests.telegram.server import ANA, FORUM, GROUP, TOKEN, BotServer, Fault
from tests.telegram.state import Chat

CHANNEL = f"tg:{GROUP}"
LONG = Message(markdown="\n\n".join(f"paragraph {n} " + "word " * 150 for n in range(12)), is_foreign=True)


@pytest.fixture
async def chat(server: BotServer) -> AsyncIterator[TelegramChat]:
    async with TelegramChat(BotApi(server.token, server.url, timeout_s=2), Notes()) as made:
        yield made


def texts(server: BotServer, chat: int = GROUP) -> list[str]:
    return server.telegram.texts(chat)


async def test_who_we_are(chat: TelegramChat) -> None:
    me = await chat.identity()
    assert (me.user_id, me.team) == ("tg:999", "butler_bot")


async def test_a_post_answers_the_message_that_began_it(chat: TelegramChat, server: BotServer) -> None:
    root = server.say(GROUP, "fix it")
    ts = await chat.post(CHANNEL, Post(message=said("**Done**"), thread=f"{root:012d}"), "op1")
    message = server.telegram.own(GROUP)[0]
    assert int(ts) == message["message_id"]
    assert message["reply_to_message"]["message_id"] == root
    assert message["entities"] == [{"type": "bold", "offset": 0, "length": 4}]
    (call,) = server.named("sendMessage")
    assert call["link_preview_options"] == {"is_disabled": True}


async def test_in_a_topic_it_stands_in_the_topic(chat: TelegramChat, server: BotServer) -> None:
    topic = server.topic(FORUM, "login")
    await chat.records.update(FORUM, topic, lambda known: type(known)(topic=topic))
    await chat.post(f"tg:{FORUM}", Post(message=said("Hi"), thread=f"{topic:012d}"), "op1")
    assert server.telegram.own(FORUM)[-1]["message_thread_id"] == topic


async def test_a_topic_that_is_gone_goes_on_in_a_new_one(chat: TelegramChat, server: BotServer) -> None:
    topic = server.topic(FORUM, "login")
    await chat.records.update(FORUM, topic, lambda known: type(known)(topic=topic))
    del server.telegram.chats[FORUM].topics[topic]
    post = Post(message=said("Hi"), thread=f"{topic:012d}")
    await chat.post(f"tg:{FORUM}", post, "op1")
    await chat.post(f"tg:{FORUM}", post, "op2")
    (new,) = server.telegram.chats[FORUM].topics
    assert [m.get("message_thread_id") for m in server.telegram.own(FORUM) if "text" in m] == [new, new]
    assert (await chat.records.get(FORUM, new)).thread == f"{topic:012d}", (
        "answers there belong to the same conversation"
    )


async def test_a_long_message_is_several_and_is_edited_as_one(chat: TelegramChat, server: BotServer) -> None:
    ts = await chat.post(CHANNEL, Post(message=LONG), "op1")
    whole = texts(server)
    assert len(whole) == 3
    assert all(len(text) <= 4096 for text in whole)
    assert [n for n in range(12) if f"paragraph {n} " in "".join(whole)] == list(range(12))
    await chat.update(CHANNEL, Update(target=ts, message=said("short")), "op2")
    assert texts(server) == ["short"]
    await chat.update(CHANNEL, Update(target=ts, message=LONG), "op3")
    assert texts(server) == whole


async def test_an_edit_that_changes_nothing_is_done(chat: TelegramChat, server: BotServer) -> None:
    ts = await chat.post(CHANNEL, Post(message=said("a")), "op1")
    await chat.update(CHANNEL, Update(target=ts, message=said("a")), "op2")
    assert texts(server) == ["a"]


@pytest.mark.parametrize("kind", ["lost", "dropped", "status"])
async def test_a_post_without_a_clear_answer_is_unsure(
    chat: TelegramChat, server: BotServer, kind: str
) -> None:
    server.faults.append(Fault("sendMessage", kind))  # type: ignore[arg-type]
    with pytest.raises(ChatOutcomeUnknownError):
        await chat.post(CHANNEL, Post(message=said("a")), "op1")
    assert texts(server) == (["a"] if kind == "lost" else [])


async def test_what_telegram_refuses_was_surely_not_posted(chat: TelegramChat, server: BotServer) -> None:
    server.faults.append(Fault("sendMessage", "rate_limit", retry_after=33))
    with pytest.raises(ChatRateLimitedError) as limited:
        await chat.post(CHANNEL, Post(message=said("a")), "op1")
    assert limited.value.retry_after_s == 33
    server.faults.append(
        Fault("sendMessage", "refused", "Forbidden: bot was kicked from the supergroup chat", 403)
    )
    with pytest.raises(ChatError) as refused:
        await chat.post(CHANNEL, Post(message=said("a")), "op1")
    assert refused.value.code == "not_in_channel"
    with pytest.raises(ChatError) as unknown:
        await chat.post("tg:-42", Post(message=said("a")), "op1")
    assert unknown.value.code == "channel_not_found"
    assert texts(server) == []


async def test_nobody_there_was_surely_not_told() -> None:
    async with TelegramChat(BotApi(TOKEN, "http://127.0.0.1:9", timeout_s=2), Notes()) as chat:
        with pytest.raises(ChatUnreachableError):
            await chat.post(CHANNEL, Post(message=said("a")), "op1")


async def test_the_next_attempt_goes_on_behind_the_parts_that_are_there(
    chat: TelegramChat, server: BotServer
) -> None:
    server.faults.append(Fault("sendMessage", "refused", "Too Many Requests: retry after 1", 429, after=1))
    with pytest.raises(ChatRateLimitedError):
        await chat.post(CHANNEL, Post(message=LONG), "op1")
    await chat.post(CHANNEL, Post(message=LONG), "op1")
    assert len(texts(server)) == 3
    assert len(set(texts(server))) == 3


@pytest.mark.parametrize("method", ["sendMessage", "editMessageText"])
@pytest.mark.parametrize("kind", ["lost", "dropped", "status", "rate_limit"])
@pytest.mark.parametrize("after", [0, 1, 2])
async def test_an_edit_is_repeated_until_all_of_it_stands_there_once(
    chat: TelegramChat, server: BotServer, method: str, kind: str, after: int
) -> None:
    ts = await chat.post(CHANNEL, Post(message=said("…working")), "op1")
    server.faults.append(Fault(method, kind, after=after))  # type: ignore[arg-type]
    for _ in range(4):
        try:
            await chat.update(CHANNEL, Update(target=ts, message=LONG), "op2")
            break
        except (ChatOutcomeUnknownError, ChatRateLimitedError):
            continue
    shown = [text for text in texts(server) if text != "…"]
    assert len(shown) == 3
    assert len(set(shown)) == 3


async def test_a_refusal_of_the_formatting_costs_the_formatting_only(
    chat: TelegramChat, server: BotServer
) -> None:
    server.faults.append(Fault("sendMessage", "refused", "Bad Request: can't parse entities: odd"))
    await chat.post(CHANNEL, Post(message=said("**Done**")), "op1")
    assert texts(server) == ["Done"]


async def test_the_last_mark_shows_and_what_was_before_comes_back(
    chat: TelegramChat, server: BotServer
) -> None:
    number = server.say(GROUP, "fix it")
    shown = server.telegram.chats[GROUP].reactions
    for name, remove, now in (
        ("queued", False, ["👀"]),
        ("working", False, ["👨‍💻"]),
        ("queued", True, ["👨‍💻"]),
        ("waiting", False, ["🤔"]),
        ("waiting", True, ["👨‍💻"]),
        ("done", False, ["👍"]),
        ("working", True, ["👍"]),
        ("done", True, []),
    ):
        await chat.react(CHANNEL, React(target=f"{number:012d}", mark=name, remove=remove))
        assert shown[number] == now


async def test_a_group_that_allows_no_reactions_gets_none(chat: TelegramChat, server: BotServer) -> None:
    number = server.say(GROUP, "fix it")
    server.telegram.chats[GROUP].allowed_reactions = frozenset()
    await chat.react(CHANNEL, React(target=f"{number:012d}", mark="working"))
    assert server.telegram.chats[GROUP].reactions.get(number) is None


async def test_a_file_is_a_document_in_its_conversation(chat: TelegramChat, server: BotServer) -> None:
    root = server.say(GROUP, "the log?")
    upload = Upload(filename="a.log", content=b"x", comment="Here, @ana", thread=f"{root:012d}")
    name = await chat.upload(upload)
    assert name
    await chat.share(CHANNEL, upload, name)
    message = server.telegram.own(GROUP)[0]
    assert (message["document"]["file_name"], message["caption"]) == ("a.log", "Here, @\u2060ana")
    assert message["reply_to_message"]["message_id"] == root
    with pytest.raises(ChatError) as raised:
        await chat.upload(Upload(filename="big", content=bytes(50 * 2**20 + 1)))
    assert raised.value.code == "too_large"


async def test_a_group_moved_under_our_hands_is_followed(chat: TelegramChat, server: BotServer) -> None:
    server.telegram.chats[-4000] = Chat(-4000, "group", "small")
    server.migrate(-4000, -1004000, tell=False)
    ts = await chat.post("tg:-4000", Post(message=said("Hi")), "op1")
    assert texts(server, -1004000) == ["Hi"]
    await chat.update("tg:-4000", Update(target=ts, message=said("Ho")), "op2")
    assert texts(server, -1004000) == ["Ho"]


async def test_typing_is_shown_in_the_topic(chat: TelegramChat, server: BotServer) -> None:
    assert chat.capabilities.status_line is not None
    await chat.capabilities.status_line.show_status(CHANNEL, "000000000001", "reading")
    await chat.capabilities.status_line.show_status(CHANNEL, "000000000001", "")
    assert server.telegram.chats[GROUP].actions == [("typing", 0)]


async def test_progress_makes_no_sound(chat: TelegramChat, server: BotServer) -> None:
    await chat.post(CHANNEL, Post(message=said("working"), value="progress"), "op1")
    await chat.post(CHANNEL, Post(message=said("done")), "op2")
    assert [message["_silent"] for message in server.telegram.own(GROUP)] == [True, False]


async def test_a_secret_that_shows_only_without_its_marks_does_not_leave(server: BotServer) -> None:
    async with TelegramChat(
        BotApi(server.token, server.url), Notes(), redact=lambda text: text.replace("hunter2", "•••")
    ) as chat:
        await chat.post(
            CHANNEL, Post(message=Message(markdown="it is hun**ter2** now", is_foreign=True)), "op1"
        )
    assert texts(server) == ["it is ••• now"]


async def test_a_topic_that_cannot_be_replaced_is_waited_for(chat: TelegramChat, server: BotServer) -> None:
    topic = server.topic(FORUM, "login")
    await chat.records.update(FORUM, topic, lambda known: type(known)(topic=topic))
    del server.telegram.chats[FORUM].topics[topic]
    server.faults.append(
        Fault("createForumTopic", "refused", "Bad Request: not enough rights to create a topic")
    )
    with pytest.raises(ChatError) as raised:
        await chat.post(f"tg:{FORUM}", Post(message=said("Hi"), thread=f"{topic:012d}"), "op1")
    assert raised.value.code == "no_topic"
    assert raised.value.code in chat.limits.closed
    assert server.telegram.texts(FORUM) == [], "not among other conversations"


async def test_private_chats_have_names_of_their_own(chat: TelegramChat, server: BotServer) -> None:
    ts = await chat.post(f"tg:{ANA}", Post(message=said("Hi")), "op1")
    assert ts.endswith(f".{ANA}")
    await chat.update(f"tg:{ANA}", Update(target=ts, message=said("Ho")), "op2")
    assert texts(server, ANA) == ["Ho"]


async def test_the_token_is_in_no_error_and_no_log(
    server: BotServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    errors: list[BaseException] = []
    server.faults += [Fault("sendMessage", kind) for kind in ("lost", "dropped", "status")]
    server.faults.append(Fault("sendMessage", "refused", f"Bad Request: https://x/bot{TOKEN}/sendMessage"))
    for url in (server.url, "http://127.0.0.1:9", "http://[bad"):
        async with TelegramChat(BotApi(TOKEN, url, timeout_s=2), Notes()) as chat:
            assert TOKEN not in repr(chat.api) + repr(chat)
            for _ in range(4):
                try:
                    await chat.post(CHANNEL, Post(message=said("a")), "op1")
                except ChatError as error:
                    errors.append(error)
    assert len(errors) == 12
    chain: list[BaseException | None] = [*errors]
    for found in chain:
        if found is not None:
            assert TOKEN not in str(found) + repr(found)
            chain += [found.__cause__, found.__context__]
    assert TOKEN not in "".join(
        record.getMessage() for record in caplog.records if record.name != "aiohttp.access"
    )
    with pytest.raises(ChatAuthError) as raised:
        BotApi(f"{TOKEN} x")
    assert TOKEN not in str(raised.value)


async def test_the_ids_of_buttons_fit_and_are_kept(chat: TelegramChat, server: BotServer) -> None:
    button = Button("Allow", ALLOW_ACTION, "x" * 500)
    ts = await chat.post(CHANNEL, Post(message=said("May I?", button)), "op1")
    (first,) = (
        m["reply_markup"]["inline_keyboard"][0][0]["callback_data"] for m in server.telegram.own(GROUP)
    )
    assert len(first.encode()) <= 64
    await chat.update(CHANNEL, Update(target=ts, message=said("May I now?", button)), "op2")
    (again,) = (
        m["reply_markup"]["inline_keyboard"][0][0]["callback_data"] for m in server.telegram.own(GROUP)
    )
    assert again == first

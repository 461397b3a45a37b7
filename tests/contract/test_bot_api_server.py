"""The scripted Bot API server speaks what a client library that nobody here wrote understands, typed field by field."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from io import BytesIO

import pytest
from telegram import (
    Bot,
    BotCommand,
    ChatMemberAdministrator,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    MessageEntity,
    ReactionTypeEmoji,
    ReplyParameters,
    Update,
)
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, RetryAfter
from telegram.ext import Application, CallbackQueryHandler, MessageHandler, filters
from telegram.request import HTTPXRequest

from codebutler.chat.telegram.updates import UPDATE_KINDS
from tests.telegram.server import ANA, FORUM, GROUP, BotServer, Fault

KEYS = InlineKeyboardMarkup([[InlineKeyboardButton("Allow", callback_data="b:1")]])


def request() -> HTTPXRequest:
    return HTTPXRequest(httpx_kwargs={"trust_env": False})


def bot_of(server: BotServer) -> Bot:
    return Bot(
        server.token,
        base_url=f"{server.url}/bot",
        base_file_url=f"{server.url}/file/bot",
        request=request(),
        get_updates_request=request(),
    )


@pytest.fixture
async def server() -> AsyncIterator[BotServer]:
    async with BotServer() as made:
        yield made


@pytest.fixture
async def bot(server: BotServer) -> AsyncIterator[Bot]:
    async with bot_of(server) as made:
        yield made


async def test_who_we_are_and_where(bot: Bot) -> None:
    assert (await bot.get_me()).username == "butler_bot"
    assert (await bot.get_webhook_info()).pending_update_count == 0
    assert (await bot.get_chat(FORUM)).is_forum
    member = await bot.get_chat_member(GROUP, bot.id)
    assert isinstance(member, ChatMemberAdministrator)
    assert member.can_manage_topics
    assert await bot.set_my_commands([BotCommand("status", "Show what runs")])


async def test_a_message_is_sent_marked_changed_and_deleted(bot: Bot, server: BotServer) -> None:
    asked = server.say(GROUP, "go")
    sent = await bot.send_message(
        GROUP,
        "true or false? 1 `word`",
        entities=[MessageEntity("bold", 0, 4)],
        reply_parameters=ReplyParameters(asked),
        reply_markup=KEYS,
        disable_notification=True,
    )
    assert sent.text == "true or false? 1 `word`"
    assert [(each.type, each.offset, each.length) for each in sent.entities] == [("bold", 0, 4)]
    assert sent.reply_to_message is not None
    assert sent.reply_to_message.message_id == asked
    assert sent.reply_markup == KEYS
    changed = await bot.edit_message_text("No.", GROUP, sent.message_id)
    assert not isinstance(changed, bool)
    assert changed.text == "No."
    with pytest.raises(BadRequest, match="not modified"):
        await bot.edit_message_text("No.", GROUP, sent.message_id)
    assert await bot.set_message_reaction(GROUP, asked, ReactionTypeEmoji("👍"))
    with pytest.raises(BadRequest):
        await bot.set_message_reaction(GROUP, asked, ReactionTypeEmoji("⏳"))
    assert await bot.pin_chat_message(GROUP, sent.message_id)
    assert await bot.send_chat_action(GROUP, "typing")
    assert await bot.delete_message(GROUP, sent.message_id)
    with pytest.raises(BadRequest, match="too long"):
        await bot.send_message(GROUP, "x" * 4097)


async def test_files_go_both_ways(bot: Bot, server: BotServer) -> None:
    sent = await bot.send_document(GROUP, BytesIO(b"a,b"), filename="table.csv", caption="see")
    assert sent.document is not None
    assert (sent.document.file_name, sent.caption) == ("table.csv", "see")
    found = await bot.get_file(sent.document.file_id)
    assert bytes(await found.download_as_bytearray()) == b"a,b"


async def test_updates_are_confirmed_by_the_next_offset(bot: Bot, server: BotServer) -> None:
    server.say(GROUP, "one")
    server.say(GROUP, "two")
    (first, second) = await bot.get_updates(allowed_updates=UPDATE_KINDS)
    assert await bot.get_updates() == (first, second), "nothing was confirmed"
    assert first.message is not None
    assert (first.message.text, first.message.chat.type) == ("one", "supergroup")
    assert await bot.get_updates(offset=first.update_id + 1) == (second,)
    server.edit(GROUP, first.message.message_id, "uno")
    edited = (await bot.get_updates(offset=second.update_id + 1))[0].edited_message
    assert edited is not None
    assert edited.text == "uno"
    assert edited.edit_date is not None


async def test_a_topic_is_opened(bot: Bot, server: BotServer) -> None:
    topic = await bot.create_forum_topic(FORUM, "login")
    sent = await bot.send_message(FORUM, "hi", message_thread_id=topic.message_thread_id)
    assert sent.is_topic_message
    number = server.topic(FORUM, "other")
    server.say(FORUM, "within", topic=number)
    await bot.get_updates(allowed_updates=UPDATE_KINDS)
    found = [each.message for each in await bot.get_updates() if each.message]
    assert found[-1].message_thread_id == number


async def test_refusals_are_telegrams_own(
    bot: Bot, server: BotServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTB_TIMEDELTA", "1")
    server.faults.append(Fault("sendMessage", "rate_limit", retry_after=7))
    with pytest.raises(RetryAfter, match="7"):
        await bot.send_message(GROUP, "hi")
    with pytest.raises(BadRequest, match=r"[Cc]hat not found"):
        await bot.send_message(-5, "hi")
    assert await bot.leave_chat(FORUM)
    with pytest.raises(Forbidden):
        await bot.send_message(FORUM, "hi")
    server.migrate(GROUP, -1009)
    with pytest.raises(ChatMigrated) as moved:
        await bot.send_message(GROUP, "hi")
    assert moved.value.new_chat_id == -1009
    server.token = server.token[:-1] + "x"
    with pytest.raises(InvalidToken):
        await bot.get_me()


async def test_of_two_pollers_the_older_is_told(bot: Bot, server: BotServer) -> None:
    older = asyncio.create_task(bot.get_updates(timeout=30))
    async with asyncio.timeout(10):
        while not server.polls.is_waiting:  # noqa: ASYNC110 - the server sets no event
            await asyncio.sleep(0.01)
    async with bot_of(server) as other:
        await other.get_updates(timeout=0)
    with pytest.raises(Conflict):
        await older


async def test_a_foreign_program_lives_on_it(server: BotServer) -> None:
    """Its whole loop: it polls, confirms, answers, and hears a press."""
    made = Application.builder().bot(bot_of(server)).build()

    async def heard(update: Update, _: object) -> None:
        assert update.message is not None
        await update.message.reply_text(f"you said {update.message.text}", reply_markup=KEYS)

    async def pressed(update: Update, _: object) -> None:
        assert update.callback_query is not None
        await update.callback_query.answer("thanks")

    made.add_handler(MessageHandler(filters.TEXT, heard))
    made.add_handler(CallbackQueryHandler(pressed))
    async with made:
        assert made.updater is not None
        await made.start()
        await made.updater.start_polling(allowed_updates=list(UPDATE_KINDS))
        server.say(GROUP, "hello", ANA)
        async with asyncio.timeout(20):
            while "you said hello" not in server.telegram.texts(GROUP):  # noqa: ASYNC110 - the same
                await asyncio.sleep(0.01)
            query = server.press(GROUP, server.telegram.own(GROUP)[0]["message_id"], "Allow")
            while query not in server.telegram.answers:  # noqa: ASYNC110 - the same
                await asyncio.sleep(0.01)
        await made.updater.stop()
        await made.stop()
    assert server.telegram.answers[query] == "thanks"
    assert len(server.telegram.own(GROUP)) == 1

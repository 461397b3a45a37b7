"""What people say in Telegram reaches the journal: all of it, once, in its conversation."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from codebutler.chat.telegram.places import SETTLE_S
from codebutler.domain.errors import ChatAuthError, StoreFullError
from codebutler.domain.message import said
from codebutler.domain.model import Event, Post, Request
from codebutler.intake.journal import Journal
from codebutler.text.requests import request_of
from tests.clock import ManualClock
from tests.telegram.room import Room
from tests.telegram.server import ANA, BEN, FORUM, GROUP, BotServer, Fault
from tests.telegram.state import Chat

ANONYMOUS_ADMINISTRATOR = 1087968824


async def test_a_message_is_in_the_journal_before_it_is_confirmed(room: Room, server: BotServer) -> None:
    number = server.say(GROUP, "fix the login bug")
    await room.confirmed()
    (message,) = room.messages
    assert message.text == "fix the login bug"
    assert (message.channel, message.ref, message.user) == (f"tg:{GROUP}", f"{number:012d}", f"tg:{ANA}")
    assert message.order == message.ref
    assert message.thread is None
    assert not message.late
    assert server.telegram.confirmed


async def test_a_poller_begins_without_an_offset_and_never_goes_back(room: Room, server: BotServer) -> None:
    server.say(GROUP, "one")
    await room.confirmed()
    offsets = server.polls.calls
    assert offsets[0] is None
    assert all(offset is None or offset > 0 for offset in offsets)


async def test_who_dies_between_the_commit_and_the_next_poll_is_told_again_and_knows_it(
    server: BotServer, tmp_path: Path
) -> None:
    path = tmp_path / "journal.db"
    server.say(GROUP, "fix it")
    server.faults.append(Fault("getUpdates", "dropped", after=1, times=1000))
    async with Room(server, path) as room:
        await room.until(lambda: room.messages)
    assert server.telegram.waiting(), "the commit was never told"
    server.faults.clear()
    async with Room(server, path) as room:
        await room.confirmed()
        assert room.messages == []
        assert [entry.event.key for entry in await room.journal.pending()] == [
            f"message:tg:{GROUP}:000000000001"
        ]


class FullDisk(Journal):
    """Takes nothing for a while."""

    refusals = 2

    async def append(self, event: Event, request: Request):  # type: ignore[no-untyped-def]
        if FullDisk.refusals:
            FullDisk.refusals -= 1
            raise StoreFullError
        return await super().append(event, request)


async def test_what_the_disk_does_not_take_is_asked_for_again(
    server: BotServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.telegram.room.Journal", FullDisk)
    monkeypatch.setattr("codebutler.chat.telegram.connection.RETRY_S", 0.01)
    server.say(GROUP, "one")
    server.say(GROUP, "two")
    async with Room(server, tmp_path / "journal.db") as room:
        await room.confirmed()
        assert [message.text for message in room.messages] == ["one", "two"]
        assert room.full


async def test_what_was_written_while_nothing_ran_is_late(server: BotServer, tmp_path: Path) -> None:
    server.say(GROUP, "while you were out", date=server.telegram.now() - 3600)
    async with Room(server, tmp_path / "journal.db") as room:
        await room.confirmed()
        assert [message.late for message in room.messages] == [True]


async def test_strangers_bots_and_nobodies(room: Room, server: BotServer) -> None:
    server.say(GROUP, "let me in", BEN)
    server.say(GROUP, "I am a channel", sender_chat={"id": -100, "type": "channel"})
    server.telegram.tell("message", {"message_id": "broken"})
    server.say(GROUP, "hello")
    await room.confirmed()
    assert [message.text for message in room.messages] == ["hello"]
    assert room.refusals == [f"tg:{BEN}"]
    assert (room.connection.status.ignored, room.connection.status.unreadable) == (1, 1)


async def test_a_group_that_is_not_served_is_told_once_how_to_add_it(
    server: BotServer, tmp_path: Path
) -> None:
    other = -1001000000007
    server.telegram.chats[other] = Chat(other, "supergroup", "new")
    for _ in range(2):
        async with Room(server, tmp_path / "journal.db") as room:
            server.say(other, "anybody here?")
            server.say(other, "hello?", BEN)
            await room.until(lambda: server.telegram.own(other))
            server.say(GROUP, "go")
            await room.until(lambda: [message.text for message in room.messages] == ["go"])
            await room.confirmed()
    (told,) = server.telegram.texts(other)
    assert f"codebutler add-repo PATH --telegram {other}" in told


async def test_a_stranger_in_a_group_that_is_not_served_gets_no_word(room: Room, server: BotServer) -> None:
    other = -1001000000007
    server.telegram.chats[other] = Chat(other, "supergroup", "new")
    server.say(other, "anybody here?", BEN)
    server.say(GROUP, "go")
    await room.until(lambda: [message.text for message in room.messages] == ["go"])
    await room.confirmed()
    assert server.telegram.own(other) == []


@pytest.mark.parametrize(
    ("by", "chat", "left"),
    [
        (BEN, -1001000000007, 1),
        (ANA, -1001000000007, 0),
        (BEN, GROUP, 0),
        (ANONYMOUS_ADMINISTRATOR, -1001000000007, 0),
    ],
)
async def test_a_group_into_which_a_stranger_brought_us_is_left(
    server: BotServer, tmp_path: Path, by: int, chat: int, left: int
) -> None:
    clock = ManualClock()
    server.telegram.chats[-1001000000007] = Chat(-1001000000007, "supergroup", "new")
    async with Room(server, tmp_path / "journal.db", clock) as room:
        server.telegram.tell(
            "my_chat_member",
            {
                "chat": server.telegram.chats[chat].told(),
                "from": {"id": by, "first_name": "Somebody"},
                "new_chat_member": {"status": "administrator"},
            },
        )
        await room.in_time(lambda: room.notices)
        await clock.advance(SETTLE_S)
        server.say(GROUP, "go")
        await room.in_time(lambda: room.messages and len(server.named("leaveChat")) == left)
    assert [given["chat_id"] for given in server.named("leaveChat")] == [chat] * left
    assert room.troubles == []


async def test_a_served_group_that_becomes_a_supergroup_is_not_left(
    server: BotServer, tmp_path: Path
) -> None:
    """Whoever switches topics on need not be allowed; which group it was is told afterwards."""
    clock, new = ManualClock(), -1004000
    server.telegram.chats[-4000] = Chat(-4000, "group", "old")
    async with Room(server, tmp_path / "journal.db", clock) as room:
        await room.in_time(room.connection.connected.is_set)
        server.telegram.tell(
            "my_chat_member",
            {
                "chat": {"id": new, "type": "supergroup", "title": "old"},
                "from": server.telegram.users[BEN],
                "new_chat_member": {"status": "member"},
            },
        )
        server.migrate(-4000, new)
        await room.in_time(lambda: room.notices and room.chat.records.channel(new) == "tg:-4000")
        await clock.advance(SETTLE_S)
        server.say(GROUP, "go")
        await room.in_time(lambda: room.messages)
    assert server.named("leaveChat") == []


async def test_what_begins_in_general_is_answered_in_a_topic(room: Room, server: BotServer) -> None:
    channel, forum = f"tg:{FORUM}", server.telegram.chats[FORUM]
    server.say(FORUM, "let me in", BEN)
    server.say(FORUM, "/status")
    root = server.say(FORUM, "fix the\nlogin bug")
    await room.confirmed()
    for message in room.messages:
        await room.chat.post(channel, Post(message=said("On it"), thread=message.ref), f"op {message.ref}")
    ((topic, name),) = forum.topics.items()
    assert name == "fix the login bug"
    await room.chat.post(channel, Post(message=said("word " * 1500), thread=f"{root:012d}"), "long")
    in_topic = [each for each in server.telegram.own(FORUM) if each.get("message_thread_id") == topic]
    assert [each["text"][:5] for each in in_topic if "text" in each] == ["On it", "word ", "word "]
    elsewhere = [each["text"] for each in server.telegram.own(FORUM) if "message_thread_id" not in each]
    assert elsewhere == ["On it", f"I answer in a separate topic: https://t.me/c/1000000002/{topic}"]
    server.say(FORUM, "and the tests", topic=topic)
    await room.confirmed()
    assert room.messages[-1].thread == f"{root:012d}"


async def test_without_the_right_to_make_topics_general_is_answered_in_general(
    room: Room, server: BotServer
) -> None:
    server.faults.append(Fault("createForumTopic", "refused", "Bad Request: not enough rights"))
    root = server.say(FORUM, "fix it")
    await room.confirmed()
    for op_id in ("op1", "op2"):
        await room.chat.post(f"tg:{FORUM}", Post(message=said("On it"), thread=f"{root:012d}"), op_id)
    assert len(server.named("createForumTopic")) == 1
    assert server.telegram.texts(FORUM) == ["On it", "On it"]


async def test_one_that_we_cannot_handle_keeps_no_other_away(
    room: Room, server: BotServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codebutler.chat.telegram.connection.RETRY_S", 0.01)
    accept = room.intake.accept
    tried: list[Event] = []

    async def odd(event: Event, *, missed: bool = False) -> object:
        if getattr(event, "text", "") == "odd":
            tried.append(event)
            raise RuntimeError("a fault of ours")
        return await accept(event, missed=missed)

    room.intake.accept = odd  # type: ignore[method-assign,assignment]
    server.say(GROUP, "odd")
    server.say(GROUP, "hello")
    await room.confirmed()
    assert len(tried) == 3
    assert [message.text for message in room.messages] == ["hello"]


async def test_another_bots_token_makes_us_that_bot(room: Room, server: BotServer) -> None:
    server.telegram.me["username"] = "other_bot"
    room.connection.use_token("987654321:AAanother-token-of-another-bot_0000000")
    server.token = "987654321:AAanother-token-of-another-bot_0000000"
    await room.until(lambda: room.connection._me.username == "other_bot")
    server.say(GROUP, "@other_bot fix it")
    await room.until(lambda: room.messages)
    assert room.messages[0].text == "fix it"


@pytest.mark.parametrize("fault", [Fault("getMe", "status", times=2), Fault("getMe", "refused", "no", 401)])
async def test_what_comes_before_we_know_who_we_are_waits_for_that(
    room: Room, server: BotServer, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr("codebutler.chat.telegram.connection.RETRY_S", 0.01)
    monkeypatch.setattr("codebutler.chat.telegram.connection.AUTH_RETRY_S", 0.01)
    server.telegram.me["username"] = "other_bot"
    server.faults.append(fault)
    server.token = "987654321:AAanother-token-of-another-bot_0000000"
    room.connection.use_token(server.token)
    server.say(GROUP, "/status@other_bot")
    server.say(GROUP, "@other_bot fix it")
    await room.until(lambda: not server.faults and not server.telegram.waiting())
    assert [message.text for message in room.messages] == ["!status", "fix it"]


async def test_a_topic_is_a_conversation(room: Room, server: BotServer) -> None:
    topic = server.topic(FORUM, "login")
    server.say(FORUM, "fix it", topic=topic)
    server.say(FORUM, "in general")
    await room.confirmed()
    assert [message.thread for message in room.messages] == [f"{topic:012d}", None]


async def test_without_topics_a_chain_of_replies_is_one(server: BotServer, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Room(server, path) as room:
        root = server.say(GROUP, "fix it")
        await room.confirmed()
        answer = await room.chat.post(
            f"tg:{GROUP}", Post(message=said("Done."), thread=f"{root:012d}"), "op1"
        )
    async with Room(server, path) as room:
        second = server.say(GROUP, "and the other?", reply_to=int(answer))
        third = server.say(GROUP, "hello?", reply_to=second)
        server.say(GROUP, "to the first", reply_to=root)
        await room.confirmed()
        assert third > second
        assert {message.thread for message in room.messages} == {f"{root:012d}"}


async def test_an_edit_is_told_once_and_only_if_the_words_changed(room: Room, server: BotServer) -> None:
    number = server.say(GROUP, "fix the login bug")
    await room.confirmed()
    server.edit(GROUP, number, "fix the login bug")
    server.edit(GROUP, number, "fix the logout bug")
    await room.confirmed()
    (edit,) = room.edits
    assert (edit.ref, edit.text) == (f"{number:012d}", "fix the logout bug")


async def test_an_album_is_one_message(room: Room, server: BotServer) -> None:
    async def later() -> None:
        await asyncio.sleep(0.2)
        server.say(GROUP, "", media_group_id="g", photo=[server.put_file("p2", b"2")])

    first = server.say(GROUP, "", caption="both", media_group_id="g", photo=[server.put_file("p1", b"1")])
    other = asyncio.create_task(later())
    await room.until(lambda: room.messages)
    await other
    (message,) = room.messages
    assert message.text == "both"
    assert [file.id for file in message.files] == [f"{first:012d}-0", f"{first + 1:012d}-0"]
    server.say(GROUP, "look", reply_to=first + 1)
    await room.until(lambda: len(room.messages) == 2)
    assert room.messages[1].thread == f"{first:012d}"


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_long_text_that_its_senders_program_split_is_one_message(
    room: Room, server: BotServer, is_late: bool
) -> None:
    parts = [letter * 4096 for letter in "ab"] + ["the end"]

    async def send() -> None:
        for part in parts:
            server.say(GROUP, part)
            await asyncio.sleep(0.2 if is_late else 0)  # as far apart as a slow network lets them come

    sending = asyncio.create_task(send())
    await room.until(lambda: room.messages)
    await sending
    server.say(GROUP, "next")
    await room.until(lambda: [message.text for message in room.messages][-1:] == ["next"])
    whole, following = room.messages
    assert (whole.text, whole.thread, following.thread) == ("\n".join(parts), None, None)


async def test_long_texts_of_two_people_are_two_messages(room: Room, server: BotServer) -> None:
    texts = ["a" * 4096, "b" * 4096]
    server.say(GROUP, texts[0])
    server.say(GROUP, "c" * 4096, BEN)
    server.say(GROUP, texts[1])
    await room.confirmed()
    assert [message.text for message in room.messages] == texts


async def test_an_album_that_the_disk_did_not_take_begins_a_conversation_all_the_same(
    room: Room, server: BotServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codebutler.chat.telegram.connection.RETRY_S", 0.01)
    monkeypatch.setattr("codebutler.chat.telegram.connection.ALBUM_S", 0.01)
    accept = room.intake.accept
    refused: list[Event] = []

    async def full(event: Event, *, missed: bool = False) -> object:
        if not refused:
            refused.append(event)
            raise StoreFullError
        return await accept(event, missed=missed)

    room.intake.accept = full  # type: ignore[method-assign,assignment]
    for number in (1, 2):
        server.say(GROUP, "", media_group_id="g", photo=[server.put_file(f"p{number}", b"1")])
    await room.until(lambda: room.messages)
    (message,) = room.messages
    assert refused
    assert message.thread is None
    assert len(message.files) == 2


async def test_a_file_is_fetched_for_its_own_chat_only(room: Room, server: BotServer) -> None:
    from codebutler.domain.errors import ChatError

    found = bytearray()

    async def take(piece: bytes) -> None:
        found.extend(piece)

    number = server.say(
        GROUP, "", caption="see", document={**server.put_file("d1", b"x" * 1000), "file_name": "a.txt"}
    )
    bad = server.say(GROUP, "", caption="see", document=server.put_file("d2", b"x", "../../etc/passwd"))
    big = server.say(GROUP, "", caption="see", document={"file_id": "d3", "file_size": 21 * 2**20})
    await room.confirmed()
    download = await room.chat.fetch(f"tg:{GROUP}", f"{number:012d}-0", take)
    assert (download.file.name, bytes(found)) == ("a.txt", b"x" * 1000)
    for file_id, code in (
        (f"{number:012d}-1", "file_not_found"),
        ("d1", "file_not_found"),
        (f"{bad:012d}-0", "untrusted_host"),
        (f"{big:012d}-0", "too_large"),
    ):
        with pytest.raises(ChatError) as raised:
            await room.chat.fetch(f"tg:{GROUP}", file_id, take)
        assert raised.value.code == code
    with pytest.raises(ChatError, match="file_not_found"):
        await room.chat.fetch(f"tg:{FORUM}", f"{number:012d}-0", take)


async def test_commands_are_offered_and_understood(room: Room, server: BotServer) -> None:
    await room.until(lambda: server.telegram.commands)
    names = [command["command"] for command in server.telegram.commands]
    assert {"status", "stop", "create_image"} <= set(names)
    server.say(GROUP, "/status@butler_bot")
    server.say(ANA, "/start")
    server.say(ANA, "/start Zk3xQ0")
    await room.confirmed()
    requests = [request_of(message, ()) for message in room.messages]
    assert [getattr(request, "name", "") for request in requests] == ["status", "help"]
    assert room.messages[1].is_direct
    assert [getattr(notice, "code", "") for notice in room.notices] == ["Zk3xQ0"]


async def test_a_group_that_becomes_a_supergroup_stays_what_it_was(server: BotServer, tmp_path: Path) -> None:
    from tests.telegram.state import Chat

    path = tmp_path / "journal.db"
    server.telegram.chats[-4000] = Chat(-4000, "group", "small")
    async with Room(server, path) as room:
        old = server.say(-4000, "before")
        await room.confirmed()
        server.migrate(-4000, -1004000)
        await room.confirmed()
    async with Room(server, path) as room:
        server.say(-1004000, "after")
        await room.confirmed()
        (message,) = room.messages
        assert message.channel == "tg:-4000"
        assert message.ref > f"{old:012d}", "it sorts behind what was written before"
        ts = await room.chat.post("tg:-4000", Post(message=said("Hi"), thread=message.ref), "op1")
        assert ts > message.ref
    assert server.telegram.texts(-1004000) == ["Hi"]


async def test_being_taken_out_and_in_is_told(room: Room, server: BotServer) -> None:
    chat = server.telegram.chats[GROUP].told()
    for status in ("kicked", "member"):
        server.telegram.tell("my_chat_member", {"chat": chat, "new_chat_member": {"status": status}})
    await room.confirmed()
    assert [getattr(notice, "is_in", None) for notice in room.notices] == [False, True]


async def test_two_consumers_go_on_and_say_so(
    server: BotServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codebutler.chat.telegram.polling.OTHER_CONSUMER_WAIT_S", (0.01, 0.02))
    async with Room(server, tmp_path / "a.db") as one:
        await one.until(lambda: server.polls.is_waiting)
        other = asyncio.create_task(server.polls.get(None, 100, 50, None))
        await one.until(lambda: "another program" in one.connection.status.trouble)
        server.say(GROUP, "who hears it?")
        await asyncio.gather(other, return_exceptions=True)
        await one.until(lambda: one.messages)
        await one.until(lambda: one.connection.status.state == "connected")
        assert one.connection.status.trouble == ""


async def test_a_refused_token_ends_it_at_the_start_only(server: BotServer, tmp_path: Path) -> None:
    server.token = "987654321:AAanother-token-of-another-bot_0000000"
    room = Room(server, tmp_path / "a.db")
    room.chat.api.use_token("123456789:AAtest-token_of-no-bot_at-all_0123456")
    async with room.chat:
        with pytest.raises(ChatAuthError, match="BotFather"):
            await room.connection.run()
    await room.journal.close()


async def test_network_trouble_is_waited_out(
    server: BotServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codebutler.chat.telegram.polling.CAP_S", 0.05)
    for kind in ("dropped", "status", "lost", "rate_limit"):
        server.faults.append(Fault("getUpdates", kind, retry_after=0))
    server.say(GROUP, "still there?")
    async with Room(server, tmp_path / "a.db") as room:
        await room.confirmed()
        assert [message.text for message in room.messages] == ["still there?"]
        assert room.connection.status.trouble == ""

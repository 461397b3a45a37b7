"""A day in Telegram: what people do there, on the whole product.

| case | what happens |
|---|---|
| M01 | a topic is a conversation: each is answered in its own, and the mark on the message says how it ended |
| M02 | without topics a reply goes on with the conversation, also after a kill |
| M03 | a card is decided by its button, once; what was decided stands on it |
| M04 | no with a reason: asked for by a button, given as a reply, heard by the agent |
| M05 | a question is answered by a button |
| M06 | a picture and a document reach the agent |
| M07 | commands as Telegram writes them are answered in their conversation |
| M08 | what people change before work on it begins is what is worked on |
| M09 | a voice message is transcribed, shown in its conversation, and answered |
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.house import LOOK_S, House, house
from tests.e2e.test_files import speech
from tests.mediaserver.server import KEY, MediaServer
from tests.programs import require
from tests.telegram.server import ANA, FORUM, GROUP, BotServer

ASKED = "list the files"
LISTED = "README.md"
DEADLINE_S = 30.0


class Talk:
    """A repository in a chat of Telegram, and a supervisor that serves it."""

    def __init__(self, built: House, server: BotServer, chat: int) -> None:
        self.built = built
        self.server = server
        self.chat = chat

    async def until(self, what: str, look: Callable[[], object]) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not look():  # noqa: ASYNC110 - the server sets no event
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            said = self.server.telegram.texts(self.chat)
            raise AssertionError(f"never came: {what}\n{said}\n{self.built.log()}") from None

    async def connected(self) -> None:
        await self.built.start_supervisor()
        await self.built.until_status(lambda status: status["telegram"]["state"] == "connected")

    def own(self, containing: str) -> list[dict[str, Any]]:
        """What the bot has said that holds the text, the oldest first."""
        said = self.server.telegram.own(self.chat)
        return [each for each in said if containing in str(each.get("text", each.get("caption", "")))]

    async def heard(self, containing: str, times: int = 1) -> dict[str, Any]:
        """The bot's message of that text, the ``times``th, once it stands there."""
        await self.until(containing, lambda: len(self.own(containing)) >= times)
        return self.own(containing)[times - 1]

    async def marked(self, number: int, reaction: str) -> None:
        shown = self.server.telegram.chats[self.chat].reactions
        await self.until(f"the mark {reaction}", lambda: shown.get(number) == [reaction])

    async def pressed(self, message: dict[str, Any], label: str) -> None:
        query = self.server.press(self.chat, message["message_id"], label)
        await self.until("an answer to the press", lambda: query in self.server.telegram.answers)


@asynccontextmanager
async def talk(
    tmp_path: Path,
    repo: Path,
    chat: int = GROUP,
    *,
    config: str = "{}",
    agent: str = "rehearsal",
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Talk]:
    require("bwrap")
    async with (
        BotServer() as server,
        house(tmp_path, extra_env={"TELEGRAM_API_URL": server.url, **(env or {})}) as built,
    ):
        (built.home / "config.json").write_text(config)
        await built.run("setup", "--telegram-token", server.token, "--telegram-user", str(ANA))
        built.repositories.append(repo)
        built.hand_over()
        await built.run("add-repo", str(repo), "--telegram", str(chat), "--name", "blog", "--agent", agent)
        made = Talk(built, server, chat)
        await made.connected()
        yield made


async def test_m01_a_topic_is_a_conversation(tmp_path: Path, git_repo: Path) -> None:
    async with talk(tmp_path, git_repo, FORUM) as it:
        one, other = it.server.topic(FORUM, "one"), it.server.topic(FORUM, "other")
        first = it.server.say(FORUM, ASKED, topic=one)
        second = it.server.say(FORUM, "show README.md", topic=other)
        answer = await it.heard(LISTED)
        assert answer["message_thread_id"] in (one, other)
        await it.marked(first, "👍")
        await it.marked(second, "👍")
        topics = {message.get("message_thread_id") for message in it.own("tokens")}
        assert topics <= {one, other}
        assert None not in {message.get("message_thread_id") for message in it.server.telegram.own(FORUM)}


async def test_m02_a_reply_goes_on_with_the_conversation(tmp_path: Path, git_repo: Path) -> None:
    async with talk(tmp_path, git_repo) as it:
        first = it.server.say(GROUP, ASKED)
        answer = await it.heard(LISTED)
        await it.marked(first, "👍")
        await it.built.stop(signal.SIGKILL)
        again = it.server.say(GROUP, "what did I say first?", reply_to=answer["message_id"])
        await it.connected()
        await it.marked(again, "👍")
        last = it.server.telegram.own(GROUP)[-1]
        assert last["reply_to_message"]["message_id"] == first


async def test_m03_a_card_is_decided_once(tmp_path: Path, git_repo: Path) -> None:
    (git_repo / "old.txt").write_text("old")
    async with talk(tmp_path, git_repo) as it:
        asked = it.server.say(GROUP, "delete old.txt")
        card = await it.heard("rm old.txt")
        await it.marked(asked, "🤔")
        await it.pressed(card, "Allow")
        await it.marked(asked, "👍")
        assert not (git_repo / "old.txt").exists()
        await it.until("the buttons to go", lambda: "reply_markup" not in card)
        assert "Ana" in card["text"] or "111" in card["text"]


async def test_m04_no_with_a_reason(tmp_path: Path, git_repo: Path) -> None:
    (git_repo / "old.txt").write_text("old")
    async with talk(tmp_path, git_repo) as it:
        it.server.say(GROUP, "delete old.txt")
        await it.pressed(await it.heard("rm old.txt"), "Deny with")
        question = await it.heard("Why not")
        it.server.say(GROUP, "keep it for now", reply_to=question["message_id"])
        answer = await it.heard("left")
        assert "keep it for now" in answer["text"]
        assert (git_repo / "old.txt").exists()


async def test_m05_a_question_is_answered_by_a_button(tmp_path: Path, git_repo: Path) -> None:
    async with talk(tmp_path, git_repo) as it:
        asked = it.server.say(GROUP, "write a .gitignore")
        await it.pressed(await it.heard("Which language"), "Python")
        await it.marked(asked, "👍")
        assert "__pycache__" in (git_repo / ".gitignore").read_text()


async def test_m06_files_reach_the_agent(tmp_path: Path, git_repo: Path) -> None:
    async with talk(tmp_path, git_repo) as it:
        document = {
            **it.server.put_file("d1", b"a,b\n1,2\n"),
            "file_name": "table.csv",
            "mime_type": "text/csv",
        }
        sent = it.server.say(GROUP, "", caption=ASKED, document=document)
        await it.heard("table.csv")
        await it.marked(sent, "👍")
        assert it.own("cannot be stored") == []
        (kept,) = (git_repo / ".codebutler" / "files").rglob("*table.csv")
        assert kept.read_bytes() == b"a,b\n1,2\n"


async def test_m07_commands(tmp_path: Path, git_repo: Path) -> None:
    async with talk(tmp_path, git_repo) as it:
        asked = it.server.say(GROUP, "/status@butler_bot")
        answer = await it.heard("rehearsal")
        assert answer["reply_to_message"]["message_id"] == asked
        it.server.say(GROUP, "/nonsense@butler_bot")
        await it.heard("help")


async def test_m08_words_changed_in_time_are_what_is_worked_on(tmp_path: Path, git_repo: Path) -> None:
    async with talk(tmp_path, git_repo) as it:
        await it.built.stop()
        asked = it.server.say(GROUP, "delete README.md")
        it.server.edit(GROUP, asked, ASKED)
        await it.connected()
        await it.marked(asked, "👍")
        await it.heard(LISTED)
        assert it.own("rm README.md") == []


async def test_m09_a_voice_message_is_heard_shown_and_answered(tmp_path: Path, git_repo: Path) -> None:
    recording = speech(ASKED, tmp_path / "said.wav")
    async with MediaServer(spoken=ASKED) as service:
        config = json.dumps({"openai": {"apiKey": KEY, "baseUrl": service.url}})
        async with talk(tmp_path, git_repo, config=config) as it:
            voice = {**it.server.put_file("v1", recording), "mime_type": "audio/ogg", "duration": 1}
            sent = it.server.say(GROUP, "", voice=voice)
            shown = await it.heard(f"🎤 “{ASKED}”")
            answer = await it.heard(LISTED)
            assert shown["message_id"] < answer["message_id"]
            await it.marked(sent, "👍")
            assert KEY not in it.built.log()

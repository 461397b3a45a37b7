"""Our side of Telegram on a Bot API server that nobody here wrote (telegram-test-api). It knows a few methods, waits
for nothing and hands each update out once; what it does know, it knows without us."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import unused_port

from codebutler.domain.message import ALLOW_ACTION, ApprovalCard, Message, PermissionRequest, said
from codebutler.domain.model import Post, Update
from tests.programs import require_package
from tests.telegram.room import Room
from tests.telegram.server import ANA, TOKEN

START = """
const Server = require(process.argv[1]);
new Server({port: Number(process.argv[2]), host: "127.0.0.1"}).start().then(() => console.log("ready"));
"""
CARD = Message(card=ApprovalCard((PermissionRequest(id="r1", texts=("Run `make`?",)),)))


class Foreign:
    """The server, and one person who writes to the bot in private."""

    token = TOKEN

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session
        self._who = {
            "botToken": TOKEN,
            "date": 1_795_000_000,
            "from": {"id": ANA, "first_name": "Ana", "is_bot": False},
            "chat": {"id": ANA, "first_name": "Ana", "type": "private"},
        }

    async def _call(self, method: str, **given: Any) -> Any:
        async with self._session.post(f"{self.url}/{method}", json=given) as answer:
            return (await answer.json())["result"]

    async def say(self, text: str) -> None:
        await self._call("sendMessage", **self._who, text=text)

    async def press(self, data: str, number: int) -> None:
        message = {"message_id": number, "chat": self._who["chat"]}
        await self._call("sendCallback", **{**self._who, "message": message, "data": data})

    async def told(self) -> list[dict[str, Any]]:
        """What the bot has said and nobody has read yet."""
        return [each["message"] for each in await self._call("getUpdates", token=TOKEN, chatId=ANA)]


@pytest.fixture
async def foreign() -> AsyncIterator[Foreign]:
    node, package = require_package("telegram-test-api")
    port = unused_port()
    process = await asyncio.create_subprocess_exec(
        *(str(node), "-e", START, str(package), str(port)), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"ready\n"
        async with aiohttp.ClientSession(trust_env=False) as session:
            yield Foreign(f"http://127.0.0.1:{port}", session)
    finally:
        process.kill()
        await process.wait()


async def test_people_are_heard_answered_and_decide(foreign: Foreign, tmp_path: Path) -> None:
    async with Room(foreign, tmp_path / "journal.db") as room:  # type: ignore[arg-type] # address and token are enough
        await foreign.say("list the files")
        await room.until(lambda: [message.text for message in room.messages] == ["list the files"])
        ref = await room.chat.post(f"tg:{ANA}", Post(message=said("**README.md**")), "op1")
        (answer,) = await foreign.told()
        assert answer["text"] == "README.md"
        await room.chat.update(f"tg:{ANA}", Update(target=ref, message=said("Two files.")), "op2")
        card = await room.chat.post(f"tg:{ANA}", Post(message=CARD), "op3")
        (shown,) = await foreign.told()
        allow = next(
            key for row in shown["reply_markup"]["inline_keyboard"] for key in row if "Allow" in key["text"]
        )
        await foreign.press(allow["callback_data"], int(card.split(".")[0]))
        await room.until(
            lambda: [(click.action_id, click.value) for click in room.clicks] == [(ALLOW_ACTION, "r1")]
        )
        assert room.connection.status.unreadable == 0
        assert room.connection.status.state == "connected"

"""What is typed in a chat is about what was shown when typing began: at a real terminal, with a scripted supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from codebutler.config.paths import Home
from codebutler.config.registry import Registry, RepoEntry
from codebutler.protocol.control import ChatInput, ChatOpened, Choice, ControlReply, Press, Said, Say
from tests.e2e.house import command
from tests.screen import ENTER, Screen, screen

DEADLINE_S = 20


@dataclass
class Supervisor:
    """Says what the test wants, and keeps what it is told."""

    inputs: asyncio.Queue[ChatInput] = field(default_factory=asyncio.Queue)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        self.writers.append(writer)
        self.say(ChatOpened(repo="shop", agent="claude", thread="1.1"))
        while line := await reader.readline():
            self.inputs.put_nowait(msgspec.json.decode(line, type=ChatInput))

    def say(self, *replies: ControlReply) -> None:
        self.writers[0].write(b"".join(msgspec.json.encode(reply) + b"\n" for reply in replies))

    async def given(self) -> ChatInput:
        async with asyncio.timeout(DEADLINE_S):
            return await self.inputs.get()


@asynccontextmanager
async def chat(home: Path) -> AsyncIterator[tuple[Supervisor, Screen]]:
    supervisor = Supervisor()
    home.mkdir(mode=0o700)
    entry = RepoEntry(name="shop", path=str(home.parent / "shop"))
    Registry(Home(home)).update(lambda entries: (*entries, entry))
    server = await asyncio.start_unix_server(supervisor.serve, home / "supervisor.sock")
    env = {"CODEBUTLER_HOME": str(home), "TERM": "dumb", "PATH": "/usr/bin:/bin", "HOME": str(home)}
    async with server, screen(command("chat", "shop"), env) as shown:
        await shown.until("you>")
        yield supervisor, shown
        for writer in supervisor.writers:
            writer.close()


def card(text: str, ts: str, value: str) -> Said:
    allow = Choice(label=f"Allow {value}", action_id="codebutler.allow", value=value)
    return Said(text=text, kind="card", ref=ts, choices=(allow,))


def closed(text: str, ts: str) -> Said:
    return Said(text=f"{text}\n✅ Allowed by ben.", kind="card", ref=ts)


async def test_a_card_that_comes_while_a_number_is_typed_is_not_decided(tmp_path: Path) -> None:
    async with chat(tmp_path / "home") as (supervisor, shown):
        supervisor.say(card("Touch?", "1.5", "a1"))
        await shown.until("[1] Allow a1")
        await shown.ready()
        shown.type("1")
        await shown.until("you> 1")
        supervisor.say(closed("Touch?", "1.5"), card("Push?", "1.6", "a2"))
        shown.type(ENTER)
        assert await supervisor.given() == Press(ref="1.5", action_id="codebutler.allow", value="a1")
        await shown.until("[1] Allow a2")


async def test_a_yes_that_was_begun_before_a_card_came_is_not_about_it(tmp_path: Path) -> None:
    async with chat(tmp_path / "home") as (supervisor, shown):
        await shown.ready()
        shown.type("ye")
        await shown.until("you> ye")
        supervisor.say(card("Push?", "1.6", "a2"))
        shown.type(f"s{ENTER}")
        assert await supervisor.given() == Say(text="yes", seen="0.0")
        await shown.until("[1] Allow a2")


async def test_a_card_that_moves_up_is_shown_again_before_a_number_decides_it(tmp_path: Path) -> None:
    async with chat(tmp_path / "home") as (supervisor, shown):
        supervisor.say(card("Touch?", "1.5", "a1"), card("Push?", "1.6", "a2"))
        await shown.until("[1] Allow a2")
        supervisor.say(closed("Push?", "1.6"))
        await shown.until("Still open:")
        await shown.ready()
        assert shown.text.count("[1] Allow a1") == 2
        shown.type(f"1{ENTER}")
        assert await supervisor.given() == Press(ref="1.5", action_id="codebutler.allow", value="a1")

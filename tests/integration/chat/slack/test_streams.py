"""Streamed answers over the Web API of the workspace, with connections that break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from codebutler.chat.delivery.leftovers import NOTE
from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.slack.api import SlackApi
from codebutler.domain.clock import SystemClock
from codebutler.domain.message import Message
from codebutler.domain.model import Post
from codebutler.intake.direct import DirectThreads
from codebutler.intake.journal import Journal
from codebutler.workspace.api import Fault
from codebutler.workspace.server import WorkspaceServer

HOME = "C0HOME"
ANSWER = "It is **all** fine."
SHOWN = "It is *all* fine."


class Notes:
    """The journal's, and whether nothing is noted any more."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.clean = asyncio.Event()

    async def note(self, name: str) -> str:
        return await self._journal.note(name)

    async def keep_note(self, name: str, value: str) -> None:
        await self._journal.keep_note(name, value)
        if name == NOTE:
            (self.clean.set if value == "[]" else self.clean.clear)()


class Stage:
    """One conversation, its repository's channel being HOME."""

    def __init__(self, server: WorkspaceServer, api: SlackApi, journal: Journal, book: DirectThreads) -> None:
        self.server = server
        self.api = api
        self.notes = Notes(journal)
        self.book = book
        workspace = server.workspace
        self.place = workspace.open_im(workspace.person.id, workspace.bot.id).id
        said = server.call("chat.postMessage", server.user_token, channel=self.place, text="how is it?")
        self.root = str(said["ts"])

    def sender(self) -> Sender:
        return Sender(self.api, SystemClock(), Editor(str), rng=Random(1), direct=self.book, notes=self.notes)

    @property
    def said(self) -> list[str]:
        messages = self.server.workspace.channel(self.place).messages.values()
        return [message.text for message in messages if message.by_app]

    async def until(self, *said: str) -> None:
        """This is all that is said."""
        await self.server.until(lambda: self.said == list(said), 60)

    async def until_clean(self) -> None:
        """Nothing is left to be taken away."""
        async with asyncio.timeout(60):
            await self.notes.clean.wait()

    async def answered(self, sender: Sender, *, unsure: bool = False) -> str:
        post = Post(
            message=Message(markdown=ANSWER, is_foreign=True),
            thread=self.root,
            in_place=True,
        )
        async with asyncio.timeout(60):
            return await sender.submit(HOME, "op", post, unsure=unsure)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    clock = SystemClock()
    async with (
        WorkspaceServer() as server,
        SlackApi(server.bot_token, server.api_url) as api,
        Journal.open(tmp_path / "journal.db", clock) as journal,
    ):
        book = DirectThreads(journal)
        built = Stage(server, api, journal, book)
        await book.place(HOME, built.place, (built.root,))
        yield built


@pytest.mark.parametrize(
    "faults",
    [
        [],
        [Fault(method="chat.startStream", kind="lost")],
        [Fault(method="chat.startStream", kind="error", error="missing_scope")],
        [Fault(method="chat.appendStream", kind="error", error="message_not_in_streaming_state")],
        [Fault(method="chat.appendStream", kind="reset")],
        [Fault(method="chat.stopStream", kind="reset")],
        [Fault(method="chat.stopStream", kind="lost")],
        [Fault(method="chat.update", kind="error", error="edit_window_closed")],
        [Fault(method="chat.update", kind="reset")],
        [Fault(method="chat.update", kind="lost")],
        [Fault(method="chat.update", kind="reset"), Fault(method="chat.postMessage", kind="lost")],
    ],
    ids=lambda faults: " ".join(f"{fault.method}:{fault.kind}" for fault in faults) or "none",
)
async def test_the_answer_stands_once_and_alone(stage: Stage, faults: list[Fault]) -> None:
    for fault in faults:
        stage.server.faults.add(fault)
    async with stage.sender() as sender:
        sender.written(stage.place, stage.root, "It is a", whole=False)
        if "startStream" not in str(faults):
            await stage.until("It is")
        sender.written(stage.place, stage.root, "It is **all** fi", whole=False)
        if "startStream" not in str(faults) and "appendStream" not in str(faults):
            await stage.until("It is **all**")
        await stage.answered(sender)
        sender.turn_over(stage.place, stage.root)
        await stage.until(SHOWN)
        await stage.until_clean()


async def test_the_next_life_takes_away_what_no_answer_took(stage: Stage) -> None:
    async with stage.sender() as sender:
        sender.written(stage.place, stage.root, "It is a", whole=False)
        await stage.until("It is")
    async with stage.sender() as sender:
        await stage.answered(sender, unsure=True)
        await stage.until(SHOWN)
        await stage.until_clean()

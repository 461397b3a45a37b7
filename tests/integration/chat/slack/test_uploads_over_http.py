"""Files of one name and one size, over connections that break at each of the three calls, with the journal on disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.slack.api import SlackApi
from codebutler.domain.clock import SystemClock
from codebutler.domain.model import Upload
from codebutler.intake.journal import Journal
from codebutler.workspace.api import Fault, Kind
from codebutler.workspace.server import WorkspaceServer

CALLS = ("files.getUploadURLExternal", "files.upload", "files.completeUploadExternal", "files.info")
KINDS: tuple[Kind, ...] = ("lost", "reset", "rate_limit", "status")
FILES = 24


class HurriedClock(SystemClock):
    """Waits a hundredth of the time, so that limits and back-offs are met but not sat out."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 100)

    def monotonic(self) -> float:
        return super().monotonic() * 100


class Stage:
    def __init__(self, server: WorkspaceServer, path: Path) -> None:
        self.server = server
        self.channel = server.channel_id("general")
        self.root = server.say("general", "question")
        self._path = path

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Sender]:
        """One life of the parent, as far as it sends."""
        async with (
            Journal.open(self._path, SystemClock()) as journal,
            SlackApi(self.server.bot_token, self.server.api_url) as api,
            Sender(api, HurriedClock(), Editor(str), rng=Random(1), notes=journal) as sender,
        ):
            yield sender

    async def send(self, sender: Sender, number: int, *, unsure: bool = False) -> str:
        upload = Upload(filename="report.csv", content=b"%04d" % number, thread=self.root)
        return await sender.submit(self.channel, f"op-{number}", upload, unsure=unsure)

    def shown(self) -> list[str]:
        """The files of the thread, oldest first."""
        messages = self.server.thread("general", self.root)
        return [str(file["id"]) for message in messages for file in message.get("files", ())]

    def content(self, file_id: str) -> bytes | None:
        return self.server.workspace.files[file_id].content


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with WorkspaceServer() as server, asyncio.timeout(60):
        yield Stage(server, tmp_path / "journal.db")


@pytest.mark.parametrize("kind", ["reset", "lost"])
@pytest.mark.parametrize("call", CALLS[:3])
async def test_a_reset_at_any_call_of_the_second_file_loses_and_doubles_nothing(
    stage: Stage, call: str, kind: Kind
) -> None:
    async with stage.life() as sender:
        first = await stage.send(sender, 1)
        stage.server.faults.add(Fault(method=call, kind=kind))
        second = await stage.send(sender, 2)
    assert stage.server.faults.pending() == ()
    assert stage.shown() == [first, second]
    assert [stage.content(file_id) for file_id in stage.shown()] == [b"0001", b"0002"]


async def test_slack_asks_to_complete_an_upload_again(stage: Stage) -> None:
    failed = Fault(method="files.completeUploadExternal", kind="error", error="file_update_failed", times=2)
    stage.server.faults.add(failed)
    async with stage.life() as sender:
        assert [await stage.send(sender, 1)] == stage.shown()
    assert len(stage.server.workspace.files) == 1


@pytest.mark.parametrize("call", ["files.getUploadURLExternal", "files.completeUploadExternal"])
async def test_a_refusal_is_told_in_the_thread(stage: Stage, call: str) -> None:
    stage.server.faults.add(Fault(method=call, kind="error", error="file_type_not_allowed"))
    async with stage.life() as sender:
        ts = await stage.send(sender, 1)
    line = stage.server.thread("general", stage.root)[-1]
    assert (line["ts"], stage.shown()) == (ts, [])
    assert "`report.csv` was not sent: the chat refused it (file_type_not_allowed)" in line["text"]


@pytest.mark.parametrize("seed", range(3))
async def test_random_faults_and_deaths_lose_none_and_double_none(stage: Stage, seed: int) -> None:
    rng = Random(seed)
    for _ in range(FILES):
        stage.server.faults.add(Fault(method=rng.choice(CALLS), kind=rng.choice(KINDS), status=500))
    credited: dict[int, str] = {}

    async def send(sender: Sender, number: int, *, unsure: bool) -> None:
        credited[number] = await stage.send(sender, number, unsure=unsure)

    lives = 0
    while len(credited) < FILES:
        async with stage.life() as sender:
            left = [number for number in range(FILES) if number not in credited]
            tasks = [asyncio.create_task(send(sender, number, unsure=lives > 0)) for number in left]
            # A few moments of the loop, wherever that is: the sender then dies in the middle of something.
            await asyncio.wait(tasks, timeout=rng.uniform(0.05, 0.5))
        await asyncio.gather(*tasks, return_exceptions=True)
        lives += 1
    assert sorted(credited.values()) == sorted(stage.shown())
    assert len(set(stage.shown())) == FILES
    assert {number: stage.content(file_id) for number, file_id in credited.items()} == {
        number: b"%04d" % number for number in range(FILES)
    }

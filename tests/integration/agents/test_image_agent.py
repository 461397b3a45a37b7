"""The agent behind !create-image: draws, keeps, hands over; stops; says in a line what went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codebutler.config.schema import OpenAISection
from codebutler_worker.agents.backend import AgentEvent, Finished, ToolUse, TurnRequest
from codebutler_worker.agents.headless import ImageBackend
from codebutler_worker.internet.remote import MediaService
from codebutler_worker.store.opening import prepare_state_dir
from tests.clock import settle
from tests.mediaserver.server import KEY, MediaServer

DEADLINE_S = 20


@pytest.fixture
def turn(tmp_path: Path) -> TurnRequest:
    prepare_state_dir(tmp_path)
    return TurnRequest(
        turn_id="0123456789abcdef", conversation="C1:1.0", prompt="a lighthouse", workdir=tmp_path
    )


def agent(server: MediaServer) -> ImageBackend:
    return ImageBackend(MediaService(OpenAISection(api_key=KEY, base_url=server.url)))


async def events(stream: AsyncIterator[AgentEvent]) -> list[AgentEvent]:
    async with asyncio.timeout(DEADLINE_S):
        return [event async for event in stream]


async def end_of(stream: AsyncIterator[AgentEvent]) -> Finished:
    last = (await events(stream))[-1]
    assert isinstance(last, Finished)
    return last


async def test_a_picture_is_kept_and_handed_over(turn: TurnRequest) -> None:
    async with MediaServer() as server:
        seen = await events(agent(server).start(turn))
    name = ".codebutler/images/image-0123456789ab.png"
    assert seen == [
        ToolUse(turn.turn_id, "Image", "a lighthouse"),
        Finished(ok=True, text=f"<<<SLACK:file>>> {name} <<<END_SLACK>>>", reason="done"),
    ]
    assert (turn.workdir / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("picture", [b"", b"<svg onload='x'/>", b"GIF8 but no more", b"PK\x03\x04"])
async def test_what_is_no_picture_is_not_kept(turn: TurnRequest, picture: bytes) -> None:
    async with MediaServer(picture=picture) as server:
        finished = await end_of(agent(server).start(turn))
    assert not finished.ok
    assert "not an image" in finished.text
    assert list((turn.workdir / ".codebutler" / "images").iterdir()) == []


async def test_a_service_that_is_not_set_up_is_said_at_once(turn: TurnRequest) -> None:
    seen = await events(ImageBackend(MediaService(OpenAISection())).start(turn))
    assert len(seen) == 1
    assert isinstance(seen[0], Finished)
    assert "set openai.apiKey" in seen[0].text


async def test_a_directory_that_became_a_link_gets_nothing(turn: TurnRequest) -> None:
    elsewhere = turn.workdir / "elsewhere"
    elsewhere.mkdir()
    (turn.workdir / ".codebutler" / "images").rmdir()
    (turn.workdir / ".codebutler" / "images").symlink_to(elsewhere)
    async with MediaServer() as server:
        finished = await end_of(agent(server).start(turn))
    assert not finished.ok
    assert list(elsewhere.iterdir()) == []


async def test_it_stops_when_told(turn: TurnRequest) -> None:
    async with MediaServer() as server:
        server.hold.clear()
        image = agent(server)
        task = asyncio.create_task(end_of(image.start(turn)))
        async with asyncio.timeout(DEADLINE_S):
            await server.asked.wait()
        await image.stop(turn.turn_id)
        assert (await task).reason == "stopped"


async def test_closing_ends_what_is_drawn(turn: TurnRequest) -> None:
    async with MediaServer() as server:
        server.hold.clear()
        image = agent(server)
        task = asyncio.create_task(end_of(image.start(turn)))
        async with asyncio.timeout(DEADLINE_S):
            await server.asked.wait()
        await image.close()
        await settle(5)
        assert (await task).reason == "stopped"

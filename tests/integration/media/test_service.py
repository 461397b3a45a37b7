"""The client of the service for speech and pictures, against a compatible server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from codebutler.config.schema import OpenAISection
from codebutler_worker.internet.remote import (
    MAX_AUDIO_BYTES,
    MAX_PROMPT_CHARS,
    MediaService,
    RemoteError,
)
from codebutler_worker.media.files import kind_of
from tests.mediaserver.server import KEY, MediaServer
from tests.programs import require


def service(server: MediaServer, key: str = KEY, **settings: str) -> MediaService:
    return MediaService(OpenAISection(api_key=key, base_url=server.url, **settings))


@pytest.fixture
def speech(tmp_path: Path) -> bytes:
    path = tmp_path / "said.wav"
    subprocess.run([require("espeak-ng"), "-w", str(path), "please run the tests"], check=True)
    return path.read_bytes()


async def test_speech_becomes_text(speech: bytes) -> None:
    async with MediaServer(spoken=" please run\nthe tests ") as server:
        told = await service(server, language="en", transcription_model="whisper-large-v3").transcribe(
            "a.wav", speech
        )
        assert told == "please run the tests"
        heard = server.heard[0]
        assert heard.form == {"model": "whisper-large-v3", "language": "en", "response_format": "json"}
        assert heard.length_s > 0.5
        assert heard.loudest > 0.05


async def test_no_language_is_left_to_the_service(speech: bytes) -> None:
    async with MediaServer(spoken="x") as server:
        await service(server).transcribe("a.wav", speech)
        assert "language" not in server.heard[0].form


async def test_a_picture_is_drawn() -> None:
    async with MediaServer() as server:
        assert kind_of(await service(server).draw("a lighthouse")) == "image"
        assert await service(server, image_model="dall-e-3").draw("a lighthouse")
        assert [asked.get("response_format") for asked in server.drawn] == [None, "b64_json"]


async def test_a_server_of_ones_own_needs_no_key(speech: bytes) -> None:
    async with MediaServer(spoken="x", key="") as server:
        server.key = ""
        assert MediaService(OpenAISection(base_url=server.url)).available
    assert not MediaService(OpenAISection()).available
    with pytest.raises(RemoteError, match=r"set openai\.apiKey"):
        await MediaService(OpenAISection()).transcribe("a.wav", speech)


@pytest.mark.parametrize(
    ("status", "words"),
    [(400, "scripted refusal"), (429, "limit"), (500, "status 500"), (403, "openai.apiKey")],
)
async def test_a_refusal_is_one_line(status: int, words: str) -> None:
    async with MediaServer(status=status) as server:
        with pytest.raises(RemoteError, match=words) as told:
            await service(server).draw("x")
        assert KEY not in str(told.value)


async def test_a_wrong_key_says_so() -> None:
    async with MediaServer() as server:
        with pytest.raises(RemoteError, match=r"check openai\.apiKey"):
            await service(server, key="sk-wrong-key-1234567890").draw("x")


async def test_nobody_there_is_one_line() -> None:
    gone = MediaService(OpenAISection(api_key=KEY, base_url="http://127.0.0.1:9/v1"))
    with pytest.raises(RemoteError, match=r"check openai\.baseUrl"):
        await gone.draw("x")


async def test_too_much_is_not_sent() -> None:
    async with MediaServer() as server:
        with pytest.raises(RemoteError, match="25 MB"):
            await service(server).transcribe("a.wav", b"x" * (MAX_AUDIO_BYTES + 1))
        with pytest.raises(RemoteError, match="shorten"):
            await service(server).draw("x" * (MAX_PROMPT_CHARS + 1))
        assert server.heard == []
        assert server.drawn == []


async def test_it_goes_through_the_proxy_that_is_named() -> None:
    async with MediaServer() as proxy:
        env = {"HTTP_PROXY": proxy.url.removesuffix("/v1")}
        far = MediaService(OpenAISection(api_key=KEY, base_url="http://media.invalid/v1"), env)
        assert await far.draw("a lighthouse")
        assert len(proxy.drawn) == 1

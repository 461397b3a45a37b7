"""The tests' own service for speech and pictures: OpenAI's Audio and Images API on loopback.

It really reads the recording (a WAV file with sound in it) and answers what the test says was spoken; it really
draws a PNG.
"""

from __future__ import annotations

import asyncio
import base64
import io
import struct
import wave
import zlib
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.loopback import on_loopback

KEY = "sk-media-1234567890abcdef"


@dataclass(frozen=True, slots=True)
class Heard:
    """A recording that came: its form's fields, its name, its length and its loudest sample (0 to 1)."""

    form: dict[str, str]
    filename: str
    length_s: float
    loudest: float


@dataclass(slots=True)
class MediaServer:
    """Use as an async context manager. ``spoken`` is the transcript, ``status`` other than 200 a refusal; while
    ``hold`` is cleared no picture comes, and ``asked`` is set when one is wanted."""

    spoken: str = ""
    status: int = 200
    key: str = KEY
    heard: list[Heard] = field(default_factory=list)
    drawn: list[dict[str, Any]] = field(default_factory=list)
    picture: bytes | None = None
    url: str = ""
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    _open: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def __aenter__(self) -> Self:
        self.hold.set()
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/audio/transcriptions", self._transcribe)
        app.router.add_post("/v1/images/generations", self._draw)
        self.url = f"http://127.0.0.1:{await self._open.enter_async_context(on_loopback(app))}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hold.set()
        await self._open.aclose()

    def _refused(self, request: web.Request) -> web.Response | None:
        if request.headers.get("authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "Incorrect API key provided"}}, status=401)
        if self.status != 200:
            return web.json_response({"error": {"message": "scripted refusal"}}, status=self.status)
        return None

    async def _transcribe(self, request: web.Request) -> web.Response:
        if refused := self._refused(request):
            return refused
        form = await request.post()
        upload = form["file"]
        assert isinstance(upload, web.FileField)
        fields = {name: str(value) for name, value in form.items() if name != "file"}
        length_s, loudest = measure(upload.file.read())
        self.heard.append(Heard(fields, upload.filename, length_s, loudest))
        return web.json_response({"text": self.spoken})

    async def _draw(self, request: web.Request) -> web.Response:
        if refused := self._refused(request):
            return refused
        self.drawn.append(await request.json())
        self.asked.set()
        await self.hold.wait()
        content = png(64, 64, (200, 120, 40)) if self.picture is None else self.picture
        return web.json_response({"created": 1, "data": [{"b64_json": base64.b64encode(content).decode()}]})


def measure(recording: bytes) -> tuple[float, float]:
    """Length in seconds and loudest sample (0 to 1) of a 16-bit WAV file."""
    # A program that writes to a pipe leaves the length at its greatest: count what is really there.
    start = recording.index(b"data") + 8
    with wave.open(io.BytesIO(recording)) as file:
        rate, width = file.getframerate(), file.getsampwidth()
    samples = struct.unpack(
        f"<{(len(recording) - start) // 2}h", recording[start:][: (len(recording) - start) // 2 * 2]
    )
    assert width == 2
    return len(samples) / rate, max(map(abs, samples), default=0) / 32768


def png(width: int, height: int, colour: tuple[int, int, int]) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )

"""ImageBackend: ``!create-image`` as an agent, so that it is queued, stopped and recovered like any other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from codebutler.domain.clock import SystemClock
from codebutler.text.envelope import enveloped
from codebutler_worker.agents.backend import AgentEvent, Finished, ToolUse, TurnRequest, one_line
from codebutler_worker.agents.record import SessionLog
from codebutler_worker.agents.running import TurnBackend, Waits
from codebutler_worker.internet.remote import MediaService, RemoteError
from codebutler_worker.media.files import IMAGES, save_file
from codebutler_worker.media.kinds import kind_of

_ENDINGS = ((b"\x89PNG", ".png"), (b"\xff\xd8\xff", ".jpg"), (b"GIF8", ".gif"))


class ImageBackend(TurnBackend[Waits]):
    """Asks the service for an image, stores it in the repository's ``images/`` and sends it as a file. It has no
    sessions: each turn is independent. The service may still draw, and charge for, one that was stopped."""

    name = "image"

    def __init__(self, service: MediaService) -> None:
        super().__init__(SystemClock())
        self._service = service

    async def _work(self, turn: TurnRequest, record: SessionLog) -> AsyncGenerator[AgentEvent]:
        del record  # there is no program to record
        waits = self._live[turn.turn_id] = Waits(self._clock)
        if self._service.available:
            yield ToolUse(turn.turn_id, "Image", one_line(turn.prompt, 80))
        yield await waits.work(self._draw(turn))

    async def _draw(self, turn: TurnRequest) -> Finished:
        try:
            picture = await self._service.draw(turn.prompt)
            if kind_of(picture) != "image":
                raise RemoteError("the image service sent something that is not an image")
            name = f"image-{turn.turn_id[:12]}{_ending(picture)}"
            path = await asyncio.to_thread(save_file, turn.workdir, IMAGES, name, picture)
        except RemoteError as error:
            return Finished(ok=False, text=f"No image: {error}.", reason="failed")
        except OSError as error:
            why = error.strerror or str(error)
            return Finished(ok=False, text=f"The image cannot be saved in {IMAGES}: {why}.", reason="failed")
        return Finished(ok=True, text=enveloped(f" {path} ", "file"), reason="done")


def _ending(picture: bytes) -> str:
    return next((ending for magic, ending in _ENDINGS if picture.startswith(magic)), ".webp")

"""ImageBackend: ``!create-image`` as an agent, so that it is queued, stopped and recovered like any other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from codebutler_worker.agents.backend import AgentEvent, Answer, Finished, ToolUse, TurnRequest
from codebutler_worker.internet.remote import MediaService, RemoteError
from codebutler_worker.media.files import IMAGES, save_file
from codebutler_worker.media.kinds import kind_of

STOPPED = Finished(ok=False, text="Stopped.", reason="stopped")
_ENDINGS = ((b"\x89PNG", ".png"), (b"\xff\xd8\xff", ".jpg"), (b"GIF8", ".gif"))


class ImageBackend:
    """Has the service draw what the prompt says, keeps the picture in the repository's ``images/`` and hands it
    over as a file to send. It has no sessions: each turn stands alone."""

    name = "image"

    def __init__(self, service: MediaService) -> None:
        self._service = service
        self._drawing: dict[str, asyncio.Task[Finished]] = {}

    async def start(self, turn: TurnRequest) -> AsyncIterator[AgentEvent]:
        """Run the turn. Closing the iterator early ends the request."""
        if not self._service.available:
            yield await self._draw(turn)
            return
        yield ToolUse(turn.turn_id, "Image", " ".join(turn.prompt.split())[:80])
        task = asyncio.create_task(self._draw(turn), name=f"image of {turn.turn_id}")
        self._drawing[turn.turn_id] = task
        try:
            await asyncio.wait({task})
            yield STOPPED if task.cancelled() else task.result()
        finally:
            self._drawing.pop(turn.turn_id, None)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def answer(self, turn_id: str, request_id: str, answer: Answer) -> bool:  # noqa: ARG002 - it never asks
        """See the port."""
        return False

    async def steer(self, turn_id: str, text: str) -> bool:  # noqa: ARG002 - a picture cannot be steered
        """See the port."""
        return False

    async def stop(self, turn_id: str) -> None:
        """Ends the request; the service may still finish, and charge, the picture."""
        if task := self._drawing.get(turn_id):
            task.cancel()

    async def close(self) -> None:
        """End every request."""
        tasks = list(self._drawing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _draw(self, turn: TurnRequest) -> Finished:
        try:
            picture = await self._service.draw(turn.prompt)
            if kind_of(picture) != "image":
                raise RemoteError("the image service sent something that is no picture")
            name = f"image-{turn.turn_id[:12]}{_ending(picture)}"
            path = await asyncio.to_thread(save_file, turn.workdir, IMAGES, name, picture)
        except RemoteError as error:
            return Finished(ok=False, text=f"No image: {error}.", reason="failed")
        except OSError as error:
            why = error.strerror or str(error)
            return Finished(ok=False, text=f"The image cannot be kept in {IMAGES}: {why}.", reason="failed")
        return Finished(ok=True, text=f"<<<SLACK:file>>> {path} <<<END_SLACK>>>", reason="done")


def _ending(picture: bytes) -> str:
    return next((ending for magic, ending in _ENDINGS if picture.startswith(magic)), ".webp")

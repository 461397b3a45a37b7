"""The files an agent sends: ``<<<SLACK:file>>> path <<<END_SLACK>>>`` in its text becomes an upload."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from codebutler.errors import StoreError
from codebutler.model import Upload
from codebutler.text.envelope import Envelope, parts_of, without
from codebutler_worker.agents.backend import Finished
from codebutler_worker.conversation.desk import Desk, Place
from codebutler_worker.media import shelf
from codebutler_worker.present.files import only_files, unsent

FILE = "file"
MAX_FILES = 20


class Parcels:
    """One turn's. An answer repeats the text before it: what was sent already is not sent again for it."""

    def __init__(self, desk: Desk, place: Place) -> None:
        self._desk = desk
        self._place = place
        self._asked: set[str] = set()
        self._sent: list[str] = []
        self._count = 0

    async def take(self, text: str) -> str:
        """Send the files that the text names; returns the text without their envelopes."""
        return await self._take(text, again=True)

    async def finish(self, finished: Finished) -> Finished:
        """The same for a turn's answer."""
        if not finished.ok:
            return finished
        text = await self._take(finished.text, again=False)
        if not text.strip() and self._sent:
            text = only_files(self._sent)
        return replace(finished, text=text)

    async def _take(self, text: str, *, again: bool) -> str:
        parts = parts_of(text)
        paths = [part.body for part in parts if isinstance(part, Envelope) and part.type == FILE]
        if not paths:
            return text
        for path in paths:
            if again or path not in self._asked:
                await self._send(path)
        return without(parts, FILE)

    async def _send(self, path: str) -> None:
        self._asked.add(path)
        self._count += 1
        if self._count > MAX_FILES:
            return
        try:
            if self._count == MAX_FILES:
                raise OSError(0, f"a turn may send {MAX_FILES - 1} files")
            repo = Path(self._desk.settings.path)
            name, content = await asyncio.to_thread(shelf.load, repo, path, self._desk.private)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "no such file"
            await self._commit(unsent(path, why))
            return
        self._sent.append(name)
        await self._commit(
            Upload(filename=name, title=name, content=content, thread_ts=self._place.thread_ts)
        )

    async def _commit(self, said: Upload | str) -> None:
        try:
            if isinstance(said, str):
                await self._desk.commit(lambda draft: draft.post(self._place, said))
            else:
                await self._desk.commit(lambda draft: draft.add(self._place, said))
        except StoreError as error:
            # The answer matters more: it is tried until it is kept.
            self._desk.report.log("ERR", f"a file was not sent: {error}")

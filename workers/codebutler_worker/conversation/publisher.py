"""Publishes what an agent sends while it works: an envelope in its text (`text/requests.py`) is posted at
once, and a file that it names becomes an upload.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from codebutler.domain.errors import StoreError
from codebutler.domain.model import Post, Upload
from codebutler.text.envelopes import Envelope, EnvelopeParser, Part, parts_of, prose_of
from codebutler_worker.agents.backend import Finished
from codebutler_worker.changes.card import push_offer
from codebutler_worker.conversation.approvals import open_poll
from codebutler_worker.media.files import load_file
from codebutler_worker.present.progress import only_files, posts, unsent
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.store.unit_of_work import ThreadPlace

FILE = "file"
QUESTION = "question"
PUSH = "push"
MAX_FILES = 20
MAX_ENVELOPES = 100
TOO_MANY = f"⚠️ More than {MAX_ENVELOPES} messages in one run: the rest is in the session's log only."
SAID_ABOVE = "Done, see above."


class Publisher:
    """Sends what a turn's agent sends in its text, besides its answer. An answer repeats the text before it; nothing is
    sent twice."""

    def __init__(self, runtime: Runtime, place: ThreadPlace, workdir: Path) -> None:
        self._runtime = runtime
        self._place = place
        self._workdir = workdir
        self._parser = EnvelopeParser(runtime.settings.config.envelope.unclosed_timeout_ms / 1000)
        self._seen: set[Envelope] = set()
        self._sent: list[str] = []
        self._files = self._envelopes = 0
        self._closing: asyncio.Task[None] | None = None

    async def take(self, text: str) -> str:
        """Send the envelopes in the text; returns the rest."""
        parts = self._parser.feed(text, self._runtime.clock.monotonic())
        await self._publish(parts, again=True)
        if self._parser.open and self._closing is None:
            self._closing = asyncio.create_task(self._close_in_time(), name="open envelope")
        return prose_of(parts)

    async def finish(self, finished: Finished) -> Finished:
        """The same for a turn's answer; an open envelope is sent as incomplete."""
        await self.close()
        await self._publish(self._parser.close(), again=True)
        if not finished.ok:
            return finished
        parts = parts_of(finished.text)
        await self._publish(parts, again=False)
        text = prose_of(parts)
        if not text and self._sent:
            text = only_files(self._sent)
        elif not text and self._envelopes:
            text = SAID_ABOVE
        return replace(finished, text=text)

    async def close(self) -> None:
        """Stop: the turn is over."""
        closing, self._closing = self._closing, None
        if closing is not None:
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)

    async def _close_in_time(self) -> None:
        while self._parser.open:
            await self._runtime.clock.sleep(1.0)
            await self._publish(self._parser.overdue(self._runtime.clock.monotonic()), again=True)
        self._closing = None

    async def _publish(self, parts: Iterable[Part], *, again: bool) -> None:
        for part in parts:
            if not isinstance(part, Envelope) or (part in self._seen and not again):
                continue
            self._seen.add(part)
            if part.type == FILE:
                await self._send(part)
            else:
                await self._post(part)

    async def _post(self, envelope: Envelope) -> None:
        self._envelopes += 1
        if self._envelopes == MAX_ENVELOPES:
            await self._commit(TOO_MANY)
        if self._envelopes >= MAX_ENVELOPES:
            return
        if envelope.type == PUSH:
            await self.ask_to_push(envelope.body)
            return
        if envelope.type == QUESTION and envelope.complete and await self._ask(envelope.body):
            return
        limit = self._runtime.settings.config.output.max_chars_per_message
        for post in posts(envelope, self._place.thread, limit, self._runtime.redactor.redact):
            await self._commit(post)

    async def _ask(self, body: str) -> bool:
        """Whether it was posted with buttons."""
        config, turn_id = self._runtime.settings.config, self._place.turn_id or ""
        text = self._runtime.redactor.redact(body)
        try:
            return await self._runtime.commit(lambda uow: open_poll(uow, turn_id, text, config))
        except StoreError as error:
            self._runtime.log("ERR", f"could not store a question: {error}")
            return False

    async def ask_to_push(self, why: str) -> None:
        """Post a card that asks, once in a run: nothing is pushed unless a person with permission presses its
        button."""
        turn_id = self._place.turn_id or ""
        op_id, card = f"{turn_id}-push", push_offer(turn_id, self._runtime.redactor.redact(why))
        try:
            await self._runtime.commit(
                lambda uow: uow.outbox.get(op_id) or uow.post(self._place, card, op_id=op_id)
            )
        except StoreError as error:
            self._runtime.log("ERR", f"could not store a push request: {error}")

    async def _send(self, envelope: Envelope) -> None:
        path = envelope.body
        self._files += 1
        if self._files > MAX_FILES:
            return
        try:
            if not envelope.complete:
                raise OSError(0, "its envelope was not closed")
            if self._files == MAX_FILES:
                raise OSError(0, f"a run may send {MAX_FILES - 1} files")
            name, content = await asyncio.to_thread(load_file, self._workdir, path, self._runtime.private)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "no such file"
            await self._commit(unsent(path, why))
            return
        self._sent.append(name)
        await self._commit(Upload(filename=name, title=name, content=content, thread=self._place.thread))

    async def _commit(self, sent: Post | Upload | str) -> None:
        try:
            if isinstance(sent, str):
                await self._runtime.commit(lambda uow: uow.post(self._place, sent))
            else:
                await self._runtime.commit(lambda uow: uow.add(self._place, sent))
        except StoreError as error:
            # The answer matters more: it is retried until it is stored.
            self._runtime.log("ERR", f"could not store what the agent sent: {error}")

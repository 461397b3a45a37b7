"""Going over conversations that have ended, beside everything else: nothing waits for it, and without a model's key it
does not exist.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from codebutler.config.memory.file import MemoryFile
from codebutler.config.memory.lines import holds_secret, suspicion
from codebutler.config.memory.operations import FULL_SHARE, Change, apply, is_full
from codebutler.config.schema import RepoSettings
from codebutler.config.secrets import secrets_in
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError, StoreError
from codebutler.platform.waiting import wait_for
from codebutler.text.redact import Redactor
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft, iso
from codebutler_worker.desk.states import UNFINISHED
from codebutler_worker.memory.keeping import encoded, learn
from codebutler_worker.memory.spending import Purse
from codebutler_worker.present.memory import logged
from codebutler_worker.store.rows import DeferredRow, MemoryChangeRow

if TYPE_CHECKING:
    from codebutler_worker.agents.native.model import Model
    from codebutler_worker.memory.asking import Spoken

LOOKED_BACK = timedelta(hours=24)
"""Older conversations are let be: a memory that is switched on today does not go over last year."""
ANSWER_S = 300.0
AGAIN_S = 300.0
MAX_ATTEMPTS = 3
FINAL = frozenset({"auth", "quota", "too_long", "refused"})
"""Troubles of a model (``ModelError``) that asking again does not mend."""

UNREVIEWED = """
SELECT EXISTS (
    SELECT 1 FROM turns LEFT JOIN memory_reviews USING (conversation)
    WHERE started_at >= ? AND state = 'done' AND finished_at > coalesce(up_to, '')
)
"""
"""Asked of SQLite itself at the start: see ``Store.exists``."""

Start = Callable[[Iterable[DeferredRow]], None]
Asks = Callable[[str, str], Awaitable[str]]
"""Orders and a question to the model's answer."""


def model_of(settings: RepoSettings, clock: Clock) -> Model | None:
    """The model that keeps this repository's memory, None if nobody has set one up or wants one."""
    config = settings.config
    keys = (config.kimi.api_key, config.native.api_key, config.native.model)
    if config.memory.review == "off" or not any(keys):
        return None
    # Only now: the client is not for the memory of workers that learn nothing.
    from codebutler_worker.agents.native.service import OpenAIModel
    from codebutler_worker.memory.endpoint import memory_endpoint

    endpoint = memory_endpoint(config)
    return None if endpoint is None else OpenAIModel(endpoint, clock, settings.agent_env)


class Reviews:
    """``run`` is its life; ``start`` carries out what was learned."""

    def __init__(self, desk: Desk, model: Model | None, start: Start) -> None:
        self._desk = desk
        self._model = model
        self._start = start
        self._file = MemoryFile(Path(desk.settings.path))
        self._purse = Purse(desk)
        self._load = (0, 0, 0)
        self._changed = asyncio.Event()
        self._attempts: dict[str, int] = {}
        self._not_before: dict[str, datetime] = {}

    def look(self, load: tuple[int, int, int]) -> None:
        """There are so many turns running, queued and waiting: a change may be the end of a conversation."""
        if load != self._load:
            self._load = load
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled; at once over, if there is no model."""
        if self._model is None:
            return
        if not await self._desk.store.exists(UNREVIEWED, iso(self._desk.clock.now() - LOOKED_BACK)):
            await self._changed.wait()
        while True:
            self._changed.clear()
            wait_s: float | None = AGAIN_S
            try:
                wait_s = await self._go_over_ended(self._model)
            except StoreError as error:
                self._desk.report.log("ERR", f"the memory waits for the store: {error}")
            await wait_for(self._desk.clock, self._changed, wait_s)

    async def _go_over_ended(self, model: Model) -> float | None:
        """Seconds until the next conversation may have ended, None if none is left."""
        waits: list[float] = []
        for conversation, ended in await self._desk.commit(_unreviewed):
            now = self._desk.clock.now()
            due = datetime.fromisoformat(ended) + timedelta(
                seconds=self._desk.settings.config.agent.silence_seconds
            )
            due = max(due, self._not_before.get(conversation, due))
            if due > now:
                waits.append((due - now).total_seconds())
                continue
            if (closed := await self._purse.closed(conversation)) is not None:
                waits.append(self._put_off(conversation, *closed))
                continue
            try:
                await self._go_over(model, conversation, ended)
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever breaks in learning, the worker goes on
                waits.append(await self._failed(conversation, ended, error))
            finally:
                await model.close()  # the next conversation may end in hours
        return min(waits, default=None)

    async def _go_over(self, model: Model, conversation: str, ended: str) -> None:
        memory = await asyncio.to_thread(self._file.read)
        said = await self._desk.commit(partial(_said, self._desk.settings, conversation))
        changes: list[Change] = []
        if any(each.is_person for each in said):
            ask = partial(self._complete, model, conversation)
            if is_full(memory, FULL_SHARE):
                memory = await self._consolidate(ask, model.name, memory)
            changes = await self._ask(ask, memory, said)
        asks = self._desk.settings.config.memory.review == "ask"
        for change in changes:
            waits = " (asked first)" if asks or suspicion(change.new) else ""
            self._desk.report.log("MEM", logged(model.name, change) + waits)
        if said and not changes:
            self._desk.report.log("MEM", f"{model.name}: nothing new")
        wanted = await self._desk.commit(
            partial(_learned, conversation=conversation, ended=ended, changes=changes, ask=asks)
        )
        self._attempts.pop(conversation, None)
        self._start(wanted)

    def _put_off(self, conversation: str, key: str, until: datetime) -> float:
        """A budget leaves no room today; told once. Returns the seconds to wait."""
        self._not_before[conversation] = until
        self._desk.report.log("MEM", f"nothing is learned of a conversation today: {key} is used up")
        return (until - self._desk.clock.now()).total_seconds()

    async def _ask(self, ask: Asks, memory: str, said: tuple[Spoken, ...]) -> list[Change]:
        from codebutler_worker.memory import asking

        # The service is a stranger, too: what people pasted and agents repeated stays here.
        redactor = self._redactor()
        told = [replace(each, text=redactor.redact(each.text)) for each in said]
        answer = await ask(asking.ORDERS, asking.question(redactor.redact(memory), told))
        # Only what will come about is shown, asked and kept.
        return list(self._safe(apply(self._safe(asking.operations(answer)), memory).made))

    async def _consolidate(self, ask: Asks, name: str, memory: str) -> str:
        """Make room before it is full. What comes of it must be shorter; nothing but facts that are there can go."""
        from codebutler_worker.memory import asking

        told = self._redactor().redact(memory)
        answer = await ask(asking.CONSOLIDATE, asking.consolidation(told))
        asked = self._safe(asking.operations(answer, may_remove=True))
        changes = tuple(change for change in asked if not suspicion(change.new))
        if len(apply(changes, memory).text) >= len(memory):
            return memory
        applied = await asyncio.to_thread(self._file.change, partial(apply, changes))
        self._desk.report.log("MEM", f"{name}: consolidated, {len(applied.made)} facts changed")
        await self._desk.commit(partial(_consolidated, settings=self._desk.settings, changes=applied.made))
        return applied.text

    async def _complete(self, model: Model, conversation: str, orders: str, question: str) -> str:
        from codebutler_worker.agents.native.model import ModelRequest, SystemMessage, UserMessage, complete

        async with asyncio.timeout(ANSWER_S):
            reply = await complete(model, ModelRequest((SystemMessage(orders), UserMessage(question))))
        await self._purse.paid(model.name, conversation, reply.tokens)
        return reply.said.content

    def _safe(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        redactor = self._redactor()
        return tuple(change for change in changes if not holds_secret(change.new, redactor))

    def _redactor(self) -> Redactor:
        return Redactor(secrets_in(self._desk.settings))

    async def _failed(self, conversation: str, ended: str, error: Exception) -> float:
        """Told in the log; after some attempts the conversation is let be."""
        attempts = self._attempts[conversation] = self._attempts.get(conversation, 0) + 1
        known = isinstance(error, CodeButlerError | TimeoutError)
        line = (str(error) or "the model took too long") if known else repr(error)
        self._desk.report.log("WRN" if known else "ERR", f"nothing was learned of a conversation: {line}")
        if attempts >= MAX_ATTEMPTS or getattr(error, "trouble", "") in FINAL:
            del self._attempts[conversation]
            await self._desk.commit(lambda draft: draft.uow.memories.review(conversation, ended))
            return 0.0
        self._not_before[conversation] = self._desk.clock.now() + timedelta(seconds=AGAIN_S)
        return AGAIN_S


def _unreviewed(draft: Draft) -> list[tuple[str, str]]:
    """Conversations that nobody has gone over, of those in which nothing is going on."""
    busy = {turn.conversation for turn in draft.uow.turns.in_states(*UNFINISHED)}
    found = draft.uow.memories.unreviewed(iso(draft.now - LOOKED_BACK))
    return [(conversation, ended) for conversation, ended in found if conversation not in busy]


def _said(settings: RepoSettings, conversation: str, draft: Draft) -> tuple[Spoken, ...]:
    from codebutler_worker.memory.transcript import said_since

    up_to = draft.uow.memories.reviewed_up_to(conversation)
    return said_since(draft.uow, settings.config, conversation, up_to)


def _learned(
    draft: Draft, conversation: str, ended: str, changes: list[Change], *, ask: bool
) -> list[DeferredRow]:
    draft.uow.memories.review(conversation, ended)
    newest = draft.uow.turns.newest(1, conversation)
    if not changes or not newest:
        return []
    row = _row(draft, conversation, newest[0].channel_id, newest[0].thread_ts)
    return learn(draft, row, changes, ask=ask)


def _consolidated(draft: Draft, settings: RepoSettings, changes: tuple[Change, ...]) -> None:
    """Written already; the row lets people undo it."""
    channel = settings.channel_id
    row = _row(draft, f"{channel}:", channel, "")
    draft.uow.memories.add(replace(row, changes=encoded(changes), state="made"))
    draft.uow.memories.forget_lines(change.old for change in changes)


def _row(draft: Draft, conversation: str, channel_id: str, thread_ts: str) -> MemoryChangeRow:
    return MemoryChangeRow(
        id=uuid.uuid4().hex,
        conversation=conversation,
        channel_id=channel_id,
        thread_ts=thread_ts,
        changes="[]",
        created_at=draft.stamp,
    )

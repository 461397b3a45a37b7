"""Reviews ended conversations in the background: nothing waits for a review, and without a model's key there is
none."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from codebutler.config.memory import (
    FULL_SHARE,
    FactChange,
    MemoryFile,
    apply_changes,
    holds_secret,
    is_full,
    suspicious_words,
)
from codebutler.config.schema import Config, RepoSettings
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError, StoreError
from codebutler.domain.refs import NO_PERSON, NOWHERE, ConversationRef, MessageRef
from codebutler.platform.tasks import wait_for
from codebutler_worker.agents.native.model import ModelRequest, SystemMessage, UserMessage
from codebutler_worker.memory.keeping import encode_changes, record_learned
from codebutler_worker.present.cards import logged
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import UNFINISHED
from codebutler_worker.store.rows import DeferredRow, MemoryChangeRow, MemoryReviewRow
from codebutler_worker.store.unit_of_work import UnitOfWork, iso

if TYPE_CHECKING:
    from codebutler_worker.agents.native.model import Model, TokenCount
    from codebutler_worker.memory.learning import Utterance
from codebutler.domain.clock import zone_of
from codebutler_worker.runtime.budget import WHEN, BudgetLine, end_of, used_today, used_up
from codebutler_worker.store.rows import BudgetAccount, ExpenseRow

MAX_AGE = timedelta(hours=24)
"""Older conversations are skipped: turning the memory on today does not review last year."""
PURPOSE = "(memory)"
"""Takes the place of a job's name in the usage records."""
MODEL_LIMIT_S = 300.0
RETRY_S = 300.0
MAX_ATTEMPTS = 3
FINAL = frozenset({"auth", "quota", "too_long", "refused"})
"""Model errors (``ModelError``) that asking again does not fix."""

UNREVIEWED = """
SELECT EXISTS (
    SELECT 1 FROM turns LEFT JOIN memory_reviews USING (conversation)
    WHERE started_at >= ? AND state = 'done' AND finished_at > coalesce(up_to, '')
)
"""
"""Run directly in SQLite at the start: see ``Store.exists``."""

StartCommands = Callable[[Iterable[DeferredRow]], None]
AskModel = Callable[[str, str], Awaitable[str]]
"""Orders and a question to the model's answer."""


def model_of(settings: RepoSettings, clock: Clock) -> Model | None:
    """The model that maintains this repository's memory, None if there is none or it is turned off."""
    config = settings.config
    keys = (config.kimi.api_key, config.native.api_key, config.native.model)
    if config.memory.review == "off" or not any(keys):
        return None
    # Imported here, so that workers without a memory do not load the client.
    from codebutler_worker.agents.native.service import OpenAIModel
    from codebutler_worker.memory.learning import memory_endpoint

    endpoint = memory_endpoint(config)
    return None if endpoint is None else OpenAIModel(endpoint, clock, settings.agent_env)


class Reviews:
    """Reviews conversations; ``run`` runs until cancelled. ``start`` carries out the changes that were learned."""

    def __init__(self, runtime: Runtime, model: Model | None, start: StartCommands) -> None:
        self._runtime = runtime
        self._model = model
        self._start = start
        self._file = MemoryFile(Path(runtime.settings.path))
        self._load = (0, 0, 0)
        self._changed = asyncio.Event()
        self._attempts: dict[str, int] = {}
        self._not_before: dict[str, datetime] = {}

    def look(self, load: tuple[int, int, int]) -> None:
        """``load`` is the number of turns that are running, queued and waiting: when it changes, a conversation may
        have ended."""
        if load != self._load:
            self._load = load
            self._changed.set()

    async def run(self) -> None:
        """Run until cancelled; return at once if there is no model."""
        if self._model is None:
            return
        if not await self._runtime.store.exists(UNREVIEWED, iso(self._runtime.clock.now() - MAX_AGE)):
            await self._changed.wait()
        while True:
            self._changed.clear()
            wait_s: float | None = RETRY_S
            try:
                wait_s = await self._review_ended(self._model)
            except StoreError as error:
                self._runtime.log("ERR", f"the memory is waiting for the store: {error}")
            await wait_for(self._runtime.clock, self._changed, wait_s)

    async def _review_ended(self, model: Model) -> float | None:
        """Returns the seconds until the next conversation may have ended, None if there is none."""
        waits: list[float] = []
        for conversation, ended_at in await self._runtime.commit(_unreviewed):
            now = self._runtime.clock.now()
            review_at = datetime.fromisoformat(ended_at) + timedelta(
                seconds=self._runtime.settings.config.agent.silence_seconds
            )
            review_at = max(review_at, self._not_before.get(conversation, review_at))
            if review_at > now:
                waits.append((review_at - now).total_seconds())
                continue
            config = self._runtime.settings.config
            limit = await self._runtime.commit(
                partial(_spent_limit, runtime=self._runtime, conversation=conversation)
            )
            if limit is not None:
                zone = zone_of(config.budget.timezone)
                self._not_before[conversation] = end_of(limit.period, now, zone)
                when = WHEN[limit.period]
                self._runtime.log(
                    "MEM", f"nothing is learned from a conversation {when}: {limit.key} is used up"
                )
                waits.append((self._not_before[conversation] - now).total_seconds())
                continue
            try:
                await self._review(model, conversation, ended_at)
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever breaks in learning, the worker goes on
                waits.append(await self._on_failure(conversation, ended_at, error))
            finally:
                await model.close()  # the next conversation may end in hours
        return min(waits, default=None)

    async def _review(self, model: Model, conversation: str, ended_at: str) -> None:
        memory = await asyncio.to_thread(self._file.read)
        utterances = await self._runtime.commit(partial(_utterances, self._runtime.settings, conversation))
        changes: list[FactChange] = []
        if any(each.is_person for each in utterances):
            ask = partial(self._complete, model, conversation)
            if is_full(memory, FULL_SHARE):
                memory = await self._consolidate(ask, model.name, memory)
            changes = await self._learn(ask, memory, utterances)
        needs_approval = self._runtime.settings.config.memory.review == "ask"
        for change in changes:
            note = " (asked first)" if needs_approval or suspicious_words(change.new) else ""
            self._runtime.log("MEM", logged(model.name, change) + note)
        if utterances and not changes:
            self._runtime.log("MEM", f"{model.name}: nothing new")
        commands = await self._runtime.commit(
            partial(
                _record_review,
                conversation=conversation,
                ended_at=ended_at,
                changes=changes,
                ask=needs_approval,
            )
        )
        self._attempts.pop(conversation, None)
        self._start(commands)

    async def _learn(self, ask: AskModel, memory: str, utterances: tuple[Utterance, ...]) -> list[FactChange]:
        from codebutler_worker.memory import learning

        # The service is an outsider too: secrets that people pasted or agents repeated must stay here.
        redactor = self._runtime.redactor
        redacted = [replace(each, text=redactor.redact(each.text)) for each in utterances]
        question = learning.review_question(redactor.redact(memory), redacted)
        answer = await ask(learning.REVIEW_INSTRUCTIONS, question)
        changes = self._without_secrets(learning.parse_operations(answer))
        # Only changes that will take effect are shown, asked about and stored.
        return list(self._without_secrets(apply_changes(changes, memory).applied))

    async def _consolidate(self, ask: AskModel, name: str, memory: str) -> str:
        """Make room before the memory is full. The result must be shorter, and only existing facts can be removed."""
        from codebutler_worker.memory import learning

        redacted = self._runtime.redactor.redact(memory)
        answer = await ask(learning.CONSOLIDATE_INSTRUCTIONS, learning.frame(redacted))
        operations = self._without_secrets(learning.parse_operations(answer, may_remove=True))
        changes = tuple(change for change in operations if not suspicious_words(change.new))
        if len(apply_changes(changes, memory).text) >= len(memory):
            return memory
        applied = await asyncio.to_thread(self._file.change, partial(apply_changes, changes))
        self._runtime.log("MEM", f"{name}: consolidated, {len(applied.applied)} facts changed")
        await self._runtime.commit(
            partial(_record_consolidation, settings=self._runtime.settings, changes=applied.applied)
        )
        return applied.text

    async def _complete(self, model: Model, conversation: str, instructions: str, question: str) -> str:
        from codebutler_worker.agents.native.model import complete

        async with asyncio.timeout(MODEL_LIMIT_S):
            reply = await complete(model, ModelRequest((SystemMessage(instructions), UserMessage(question))))
        config = self._runtime.settings.config
        await self._runtime.commit(partial(_record_expense, config, model.name, conversation, reply.tokens))
        return reply.said.content

    def _without_secrets(self, changes: Iterable[FactChange]) -> tuple[FactChange, ...]:
        redactor = self._runtime.redactor
        return tuple(change for change in changes if not holds_secret(change.new, redactor))

    async def _on_failure(self, conversation: str, ended_at: str, error: Exception) -> float:
        """Log the failure; after some attempts the conversation is skipped. Returns the seconds to wait."""
        attempts = self._attempts[conversation] = self._attempts.get(conversation, 0) + 1
        is_expected = isinstance(error, CodeButlerError | TimeoutError)
        line = (str(error) or "the model took too long") if is_expected else repr(error)
        self._runtime.log("WRN" if is_expected else "ERR", f"could not learn from a conversation: {line}")
        if attempts >= MAX_ATTEMPTS or getattr(error, "trouble", "") in FINAL:
            del self._attempts[conversation]
            await self._runtime.commit(
                lambda uow: uow.memory_reviews.add(MemoryReviewRow(conversation, ended_at), known="replace")
            )
            return 0.0
        self._not_before[conversation] = self._runtime.clock.now() + timedelta(seconds=RETRY_S)
        return RETRY_S


def _unreviewed(uow: UnitOfWork) -> list[tuple[str, str]]:
    """Conversations that have not been reviewed and have no running turn."""
    busy = {turn.conversation for turn in uow.turns.find(state=UNFINISHED)}
    found = uow.memories.unreviewed(iso(uow.now - MAX_AGE))
    return [(conversation, ended_at) for conversation, ended_at in found if conversation not in busy]


def _utterances(settings: RepoSettings, conversation: str, uow: UnitOfWork) -> tuple[Utterance, ...]:
    from codebutler_worker.memory.learning import utterances_since

    reviewed = uow.memory_reviews.get(conversation)
    return utterances_since(uow, settings.config, conversation, reviewed.up_to if reviewed else "")


def _record_review(
    uow: UnitOfWork, conversation: str, ended_at: str, changes: list[FactChange], *, ask: bool
) -> list[DeferredRow]:
    uow.memory_reviews.add(MemoryReviewRow(conversation, ended_at), known="replace")
    newest = uow.turns.find(newest=1, conversation=conversation)
    if not changes or not newest:
        return []
    row = _row(uow, conversation, newest[0].channel_id, newest[0].thread)
    return record_learned(uow, row, changes, ask=ask)


def _record_consolidation(uow: UnitOfWork, settings: RepoSettings, changes: tuple[FactChange, ...]) -> None:
    """The changes are already written; the row lets people undo them."""
    channel = settings.channel_id
    row = _row(uow, f"{channel}:", channel, NOWHERE)
    uow.memories.add(replace(row, changes=encode_changes(changes), state="made"))
    uow.memory_lines.delete(line=tuple(change.old for change in changes))


def _row(
    uow: UnitOfWork, conversation: str, channel_id: ConversationRef, thread: MessageRef
) -> MemoryChangeRow:
    return MemoryChangeRow(
        id=uuid.uuid4().hex,
        conversation=conversation,
        channel_id=channel_id,
        thread=thread,
        changes="[]",
        created_at=uow.stamp,
    )


def _spent_limit(uow: UnitOfWork, runtime: Runtime, conversation: str) -> BudgetLine | None:
    account = BudgetAccount(NO_PERSON, conversation, PURPOSE)
    limits = used_today(uow, runtime.settings.config, account, runtime.elsewhere)
    # A review is not a turn and takes no working time, so those limits do not apply.
    return used_up([line for line in limits if line.unit in ("usd", "tokens")])


def _record_expense(
    config: Config, model: str, conversation: str, tokens: TokenCount, uow: UnitOfWork
) -> None:
    """The usage of the memory's model counts towards the repository's budget, like that of an unnamed job."""
    from codebutler_worker.agents.native.model import cost_usd, price_of

    uow.expenses.add(
        ExpenseRow(
            purpose=PURPOSE,
            conversation=conversation,
            model=model,
            input_tokens=tokens.input,
            output_tokens=tokens.output,
            cost_usd=cost_usd(tokens, price_of(config.native.prices, model)),
            at=uow.stamp,
        )
    )

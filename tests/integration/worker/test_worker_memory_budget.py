"""What learning uses is on the repository's budget, and learning waits for room in it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from codebutler.config.schema import NativeSection, Price, RepoSettings
from codebutler.config.section import BudgetSection, DailyLimit
from tests.integration.worker.test_worker_budget import TO_MIDNIGHT_S, ZONE, held
from tests.memory_kit import (
    append,
    learned,
    learning,
    memory,
    silence,
    talk,
)
from tests.modelserver.completions import CompletionsServer
from tests.modelserver.server import Reply
from tests.shown import text_of
from tests.worker_kit import worker


def budgeted(path: Path, server: CompletionsServer, **scopes: DailyLimit) -> RepoSettings:
    plain = learning(path, server)
    budget = BudgetSection(timezone=ZONE, **scopes)
    priced = NativeSection(prices={"kimi-test": Price(input=1000, output=2000)})
    return msgspec.structs.replace(
        plain, config=msgspec.structs.replace(plain.config, budget=budget, native=priced)
    )


def wants(line: str, *, tokens: int = 500) -> Reply:
    return Reply(msgspec.json.encode([append(line)]).decode(), input_tokens=tokens, output_tokens=tokens)


@pytest.mark.parametrize("limit", [DailyLimit(tokens_per_day=1000), DailyLimit(usd_per_day=1.5)])
async def test_what_was_learned_leaves_less_for_turns(
    tmp_path: Path, model: CompletionsServer, limit: DailyLimit
) -> None:
    model.play(wants("Deploys go to staging first"))
    async with worker(budgeted(tmp_path, model, repo=limit)) as parent:
        await talk(parent)
        assert await learned(parent) == ['kimi-test: append "Deploys go to staging first"']
        parent.says("and now?", "200.1")
        assert "This repository's budget for today is used up" in text_of(await held(parent, "200.1"))
        assert len(parent.backend.runs) == 1


async def test_no_person_pays_for_it(tmp_path: Path, model: CompletionsServer) -> None:
    model.play(wants("Deploys go to staging first"))
    async with worker(budgeted(tmp_path, model, user=DailyLimit(tokens_per_day=1000))) as parent:
        await talk(parent)
        await learned(parent)
        await talk(parent, "200.1")
        assert len(parent.backend.runs) == 2


async def test_learning_waits_for_a_day_with_room(tmp_path: Path, model: CompletionsServer) -> None:
    model.play(wants("Deploys go to staging first"))
    async with worker(budgeted(tmp_path, model, repo=DailyLimit(usd_per_day=0.1))) as parent:
        await talk(parent)  # $0.12
        await silence(parent)
        told = await parent.until(lambda: parent.logs("MEM"), flow=True)
        assert told == ["nothing is learned from a conversation today: budget.repo.usdPerDay is used up"]
        assert model.requests == []
        await parent.clock.advance(TO_MIDNIGHT_S)
        await parent.until(lambda: memory(tmp_path) == "- Deploys go to staging first\n", flow=True)
        assert len(model.requests) == 1


async def test_a_days_turns_are_no_reason_to_learn_nothing(tmp_path: Path, model: CompletionsServer) -> None:
    model.play(wants("Deploys go to staging first"))
    async with worker(budgeted(tmp_path, model, repo=DailyLimit(turns_per_day=1))) as parent:
        await talk(parent)
        await silence(parent)
        await parent.until(lambda: memory(tmp_path) == "- Deploys go to staging first\n", flow=True)

"""What a worker is asked waits for its answer, whatever becomes of the process meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from codebutler.domain.errors import CodeButlerError
from codebutler.protocol.conversations import AskDiff, RunChanges, ThreadTold
from codebutler.supervisor.queues import MOST_ASKED, Questions
from tests.clock import settle
from tests.workers.stage import stage

ASKED = AskDiff(request_id="r1", turn="t1")


async def test_each_process_is_asked_until_one_answers() -> None:
    questions = Questions()
    asking = asyncio.create_task(questions.ask(ASKED, RunChanges))
    await asyncio.sleep(0)  # lets the questions be asked
    assert len(questions) == 1
    for _ in range(2):
        heard: list[object] = []
        questions.answer_to(heard.append)
        assert heard == [ASKED]
        questions.answer_to(None)
    answer = RunChanges(request_id="r1")
    questions.answered(RunChanges(request_id="another"))
    questions.answered(answer)
    questions.answered(answer)
    assert await asking is answer
    assert len(questions) == 0


async def test_too_many_questions_are_refused() -> None:
    questions = Questions()
    asking = [
        asyncio.create_task(questions.ask(AskDiff(request_id=f"r{number}", turn="t1"), RunChanges))
        for number in range(MOST_ASKED)
    ]
    await asyncio.sleep(0)  # lets the questions be asked
    with pytest.raises(CodeButlerError, match="try again"):
        await questions.ask(ASKED, RunChanges)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    assert len(questions) == 0


async def test_a_question_wakes_a_worker_that_sleeps_or_falls_asleep() -> None:
    async with stage(idle_min=1, stubborn=True) as on:
        first = on.worker
        await on.beat(65)
        asking = asyncio.create_task(on.supervisor.ask("shop", ASKED, RunChanges))
        await settle()
        first.die(0)
        await settle()
        second = on.worker
        assert second is not first
        assert ASKED in second.heard
        second.say(RunChanges(request_id="r1", task="do it"))
        assert (await asking).task == "do it"
        await on.beat(65)
        second.die(0)
        await settle()
        assert on.state() == "sleeping"
        asking = asyncio.create_task(on.supervisor.ask("shop", ASKED, RunChanges))
        await settle()
        assert ASKED in on.worker.heard
        on.worker.say(RunChanges(request_id="r1"))
        await asking


async def test_a_worker_that_stays_down_is_not_waited_for() -> None:
    async with stage() as on:
        for _ in range(5):
            on.worker.die(1)
            await on.clock.advance(60)
        assert on.state() == "quarantined"
        with pytest.raises(CodeButlerError, match="the worker is not running"):
            await on.supervisor.ask("shop", ASKED, RunChanges)


async def test_an_answer_to_another_question_is_none() -> None:
    questions = Questions()
    asking = asyncio.create_task(questions.ask(ASKED, RunChanges))
    await asyncio.sleep(0)  # lets the question be asked
    questions.answered(ThreadTold(request_id="r1"))
    with pytest.raises(CodeButlerError, match="unexpected answer"):
        await asking

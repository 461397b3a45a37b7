"""Every way in which the loop ends, as the session log names it and as the thread is told."""

from __future__ import annotations

from typing import get_args

import pytest

from codebutler_worker.agents.backend import Answer, Question, ToolUse
from codebutler_worker.agents.native.backend import Habits
from codebutler_worker.agents.native.loop import Exit, LoopLimits
from codebutler_worker.agents.native.model import ModelReply
from codebutler_worker.conversation.parked import LIMITS
from tests.integration.native.conftest import Studio, says
from tests.turns import end

ROOMY = LoopLimits(most_turns=9)


def look(at: int) -> ModelReply:
    return says("", ("list_files", {"most": at}), call_id=str(at))


def wrong(at: int) -> ModelReply:
    return says("", ("read_files", {"colour": at}), call_id=str(at))


def ask() -> ModelReply:
    return says("", ("ask_user", {"question": "Which one?"}))


CASES: dict[Exit, tuple[tuple[ModelReply, ...], LoopLimits, str, str]] = {
    "done": ((look(1), says("All of it.")), ROOMY, "done", "All of it."),
    "max_turns": ((look(1), look(2), look(3)), LoopLimits(most_turns=2), "max_turns", "choose Continue"),
    "repeated_call": ((look(1),) * 3, ROOMY, "stalled", "the same call (list_files). Tell it"),
    "errors": ((wrong(1), wrong(2), wrong(3), look(4)), ROOMY, "stalled", "read_files takes paths"),
    "budget": ((look(1), look(2)), LoopLimits(most_turns=9, most_tokens=100), "limit", "native.maxTokens"),
    "needs_user": ((ask(),), ROOMY, "done", "Which one?"),
    "stopped": ((look(1), says("", ("run_terminal_command", {"command": "sleep 60"}))), ROOMY, "stopped", ""),
}


def test_there_is_a_case_for_every_exit() -> None:
    assert set(CASES) == set(get_args(Exit))


@pytest.mark.parametrize("leaving", CASES)
async def test_it_ends_in_this_way(studio: Studio, leaving: Exit) -> None:
    script, limits, reason, words = CASES[leaving]
    studio.habits = Habits(limits=limits)
    studio.model.play(*script)
    request = studio.request("work")
    events = []
    async for event in studio.agent().start(request):
        events.append(event)
        if isinstance(event, Question):
            assert await studio.agent().answer(request.turn_id, event.id, Answer(False, ""))
        if isinstance(event, ToolUse) and event.name == "run_terminal_command":
            await studio.agent().stop(request.turn_id)
    ended = end(events)
    assert ended.reason == reason
    assert words in ended.text
    # Where the loop left by itself a button lets it go on.
    assert ("choose Continue" in ended.text.replace("Choose", "choose")) == (reason in LIMITS)
    assert studio.log()[-1]["stopped_reason"] == leaving

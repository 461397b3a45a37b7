"""A model that takes less than was thought, or does not count: no thread is stuck, and limits hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from codebutler_worker.agents.native.backend import Habits
from codebutler_worker.agents.native.loop import LoopLimits
from codebutler_worker.agents.native.model import (
    AssistantMessage,
    ModelError,
    ModelReply,
    ModelRequest,
    TokenCount,
)
from tests.integration.native.conftest import Studio, says, session_of
from tests.turns import end


def look(at: int) -> tuple[str, dict[str, str]]:
    """A call with a long result."""
    return ("run_terminal_command", {"command": f"seq {at} 6000"})


def takes(chars: int, reply: ModelReply, context: int | None = None) -> Callable[[ModelRequest], ModelReply]:
    """An answer of a service that takes so many characters besides the orders."""

    def answered(prompt: ModelRequest) -> ModelReply:
        if sum(len(message.content) for message in prompt.messages[1:]) > chars:
            raise ModelError("too_long", "the conversation is too long for the model", context=context)
        return reply

    return answered


@pytest.mark.parametrize("context", [None, 9_000])
async def test_a_thread_is_never_stuck(studio: Studio, context: int | None) -> None:
    results = [says("", look(at), call_id=f"c{at}") for at in range(3)]
    pasted = "first line\n" + "x" * 60_000 + "\nlast line: mend the parser"
    studio.model.play(*results)
    studio.model.play(*[takes(6_000, says("Done.", tokens=0), context)] * 12)
    first = await studio.run(pasted)
    assert (end(first).ok, end(first).text) == (True, "Done."), end(first)
    told = "".join(message.content for message in studio.model.asked[-1].messages)
    assert "first line" in told
    assert "last line: mend the parser" in told
    assert "characters were left out to make room" in told
    asked = len(studio.model.asked)
    again = await studio.run("and the lexer", session_id=session_of(first))
    assert end(again).text == "Done."
    assert len(studio.model.asked) == asked + 1


async def test_a_summary_is_asked_for_with_the_tools(studio: Studio) -> None:
    """Gateways take a conversation with calls only together with their definitions."""
    studio.context = 20_000
    steps = [says("I look.", look(at), call_id=f"c{at}", tokens=0) for at in range(9)]
    await studio.run("look", *steps, *[says("So it is.", tokens=0)] * 4)
    asked = [prompt for prompt in studio.model.asked if "Stop working" in prompt.messages[-1].content]
    assert asked
    assert all(prompt.tools == studio.model.asked[0].tools for prompt in studio.model.asked)


async def test_a_model_too_small_for_the_orders_says_so(studio: Studio) -> None:
    finished = end(await studio.run("hello", *[takes(0, says("never"), context=512)] * 9))
    assert (finished.ok, "context (512 tokens) is smaller" in finished.text) == (False, True)
    assert len(studio.model.asked) == 1


async def test_what_is_not_counted_is_reckoned_and_meets_its_limit(studio: Studio) -> None:
    studio.habits = Habits(limits=LoopLimits(most_turns=9, most_usd=0.5))
    studio.cost = lambda reply: 0.0001 * reply.tokens.input
    uncounted = [
        ModelReply(says("x" * 400, look(at), call_id=f"c{at}").said, TokenCount()) for at in range(5)
    ]
    finished = end(await studio.run("work", *uncounted))
    assert finished.reason == "limit"
    assert finished.usage.cost_usd is not None
    assert 0.5 <= finished.usage.cost_usd < 3
    assert finished.usage.output_tokens > 100


async def test_what_is_counted_is_believed(studio: Studio) -> None:
    used = end(await studio.run("work", ModelReply(AssistantMessage("Done."), TokenCount(7, 3, 2)))).usage
    assert (used.input_tokens, used.output_tokens) == (7, 3)

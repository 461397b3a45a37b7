"""What a turn has used so far."""

from __future__ import annotations

import pytest

from codebutler_worker.agents.backend import Usage
from codebutler_worker.agents.claude.schema import (
    ApiMessage,
    Meter,
    ResultLine,
    StreamPart,
    TokenUsage,
)

START = StreamPart("message_start", ApiMessage(usage=TokenUsage(10, 1, 20, 30)))
END = StreamPart("message_delta", usage=TokenUsage(output_tokens=7))


def test_a_total_that_began_again_counts_from_zero() -> None:
    meter = Meter(2.0)
    meter.settle(ResultLine(total_cost_usd=0.5))
    assert meter.usage.cost_usd == 0.5
    meter.settle(ResultLine(total_cost_usd=None))
    assert meter.usage.cost_usd is None
    assert meter.priced("Estimated cost: $0.5")
    assert meter.usage.cost_usd == 0.5


def test_a_result_replaces_what_was_counted() -> None:
    meter = Meter(0.0)
    meter.streamed(START, inner=False)
    meter.streamed(END, inner=False)
    assert meter.usage == Usage(60, 7, None, 1)
    meter.settle(ResultLine(num_turns=1, total_cost_usd=0.1, usage=TokenUsage(60, 8)))
    assert meter.usage == Usage(60, 8, 0.1, 1)
    meter.streamed(START, inner=True)
    assert meter.usage == Usage(120, 8, 0.1, 1)


def test_the_cost_is_asked_for_twice_after_a_message() -> None:
    meter = Meter(0.0)
    assert meter.asks == 0
    meter.streamed(END, inner=False)
    assert meter.asks == 2


@pytest.mark.parametrize("text", [None, "", "You are on a subscription", "cost: free"])
def test_who_does_not_tell_is_not_asked_again(text: str | None) -> None:
    meter = Meter(0.0)
    meter.streamed(END, inner=False)
    assert not meter.priced(text)
    assert meter.asks == 0
    meter.streamed(END, inner=False)
    assert meter.asks == 0
    assert meter.usage.cost_usd is None


@pytest.mark.parametrize(
    ("told", "cost"), [("$1.2346", 0.0), ("$1.2500", 0.0154), ("$0.20", 0.2), ("$1.23", 0.0)]
)
def test_a_rounded_sum_is_never_below_what_was_spent_before(told: str, cost: float) -> None:
    meter = Meter(1.23456789)
    assert meter.priced(f"Estimated cost:        {told}")
    assert meter.usage.cost_usd == pytest.approx(cost, abs=1e-3)

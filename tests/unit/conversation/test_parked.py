"""When a refused turn is carried on, and how often that is tried."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from codebutler.config.schema import AgentSection, CommandRule, Config
from codebutler_worker.agents.backend import Finished, Reason
from codebutler_worker.agents.survey import Survey
from codebutler_worker.conversation.parked import LATEST_S, MOST_PARKINGS, others, resume_at

NOW = datetime(2026, 2, 14, 12, 0, tzinfo=UTC)
NOW_S = NOW.timestamp()


def after_s(reason: Reason, attempts: int = 0, resets_at_s: float | None = None) -> float | None:
    """The seconds until the turn is carried on; None: not by itself."""
    at = resume_at(Finished(False, "no", reason, resets_at_s=resets_at_s), attempts, NOW)
    return None if at is None else (at - NOW) / timedelta(seconds=1)


def test_a_usage_limit_is_waited_for() -> None:
    assert after_s("limit", resets_at_s=NOW_S + 7200) == 7200
    assert after_s("limit", MOST_PARKINGS - 1, NOW_S + 7200) == 7200


def test_a_time_that_is_past_is_soon() -> None:
    assert after_s("limit", resets_at_s=NOW_S - 1e9) == 30
    assert after_s("limit", resets_at_s=-math.inf) == 30


@pytest.mark.parametrize("resets_at_s", [None, NOW_S + LATEST_S + 1, 1e300, math.inf, math.nan])
def test_a_time_that_no_service_says_is_nobodys(resets_at_s: float | None) -> None:
    assert after_s("limit", resets_at_s=resets_at_s) is None


def test_a_limit_that_does_not_end_is_given_up() -> None:
    assert after_s("limit", MOST_PARKINGS, NOW_S + 60) is None


def test_an_overloaded_service_is_tried_again_ever_later_and_not_for_ever() -> None:
    assert [after_s("overloaded", attempts) for attempts in range(4)] == [30, 120, 300, None]


@pytest.mark.parametrize("reason", ["failed", "auth", "max_turns", "stopped", "done"])
def test_nothing_else_is_carried_on_by_itself(reason: Reason) -> None:
    assert after_s(reason, resets_at_s=NOW_S + 60) is None


def test_who_could_go_on_instead() -> None:
    found = [Survey(name, ready=True) for name in ("claude", "agent", "rehearsal", "image")]
    found.append(Survey("kimi", ready=False))
    assert others(found, "claude", Config()) == ("agent",)
    assert others(found, "native", Config()) == ("claude",)
    named = Config(commands=(CommandRule(prefix="rehearsal", binary="rehearsal", mode="headless"),))
    assert others(found, "claude", named) == ("agent", "rehearsal")
    default = Config(agent=AgentSection(default="rehearsal"))
    assert others(found, "claude", default) == ("agent", "rehearsal")

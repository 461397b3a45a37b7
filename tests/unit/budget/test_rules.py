"""What was used on a day, and whether a limit leaves room."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.config.load import BUILTIN_COMMANDS
from codebutler.config.programs import uses_model
from codebutler.config.schema import Config
from codebutler.config.section import BudgetSection, DailyLimit, TotalLimit
from codebutler_worker.runtime.budget import (
    SCOPES,
    Beyond,
    day_of,
    end_of,
    is_limited,
    lines,
    month_of,
    overview,
    used_up,
    used_up_text,
)
from codebutler_worker.store.rows import BudgetAccount, Spent, UsageTotal

ANA = BudgetAccount("U0ANA", "C1:1.1")
BEN = BudgetAccount("U0BEN", "C1:1.1")
NIGHTLY = BudgetAccount("operator", "C1:2.2", "nightly")

ZONES = st.sampled_from(
    [
        "UTC",
        "Europe/Berlin",
        "America/Sao_Paulo",
        "Asia/Beirut",
        "Asia/Kolkata",
        "Pacific/Apia",
        "Africa/Cairo",
    ]
).map(ZoneInfo)
MOMENTS = st.integers(1_100_000_000, 2_050_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
USED = st.builds(
    UsageTotal,
    st.floats(0, 1000),
    st.integers(0, 10**9),
    st.integers(0, 1000),
    st.floats(0, 10_000),
)
ACCOUNTS = st.builds(
    BudgetAccount,
    st.sampled_from(["U0ANA", "U0BEN"]),
    st.sampled_from(["C1:1.1", "C1:2.2"]),
    st.sampled_from(["", "nightly"]),
)
SPENT = st.lists(st.builds(Spent, st.just("claude"), ACCOUNTS, USED), max_size=8)
LIMITS = st.builds(
    DailyLimit,
    usd_per_day=st.none() | st.floats(0, 1000),
    tokens_per_day=st.none() | st.integers(1, 10**9),
    turns_per_day=st.none() | st.integers(1, 1000),
    minutes_per_day=st.none() | st.floats(0, 10_000),
)
TOTALS = st.builds(
    TotalLimit, usd_per_day=st.none() | st.floats(0, 1000), turns_per_month=st.none() | st.integers(1, 1000)
)
BUDGETS = st.builds(BudgetSection, repo=LIMITS, user=LIMITS, thread=LIMITS, job=LIMITS, total=TOTALS)


def spent(
    account: BudgetAccount, usd: float = 0.0, *, tokens: int = 0, turns: int = 1, minutes: float = 0.0
) -> Spent:
    return Spent("claude", account, UsageTotal(usd, tokens, turns, minutes))


@given(MOMENTS, ZONES)
def test_every_moment_lies_in_one_day_and_the_next_begins_where_it_ends(
    now: datetime, zone: ZoneInfo
) -> None:
    first, next_one = day_of(now, zone)
    assert first <= now < next_one
    assert day_of(next_one, zone)[0] == next_one
    assert timedelta(hours=22) <= next_one - first <= timedelta(hours=49)
    assert first.astimezone(zone).date() == now.astimezone(zone).date()


def test_a_day_begins_at_local_midnight() -> None:
    now = datetime(2026, 7, 1, 22, 30, tzinfo=UTC)
    assert day_of(now, ZoneInfo("Europe/Berlin"))[0] == datetime(2026, 7, 1, 22, tzinfo=UTC)


@given(BUDGETS, SPENT, ACCOUNTS)
def test_a_turn_is_held_exactly_when_some_limit_of_its_is_reached(
    budget: BudgetSection, spents: list[Spent], account: BudgetAccount
) -> None:
    found = lines(budget, spents, account)
    assert (used_up(found) is not None) == any(line.used >= line.limit for line in found)
    assert is_limited(budget) or not found
    assert not any(line.scope == ("user" if account.job else "job") for line in found)


@given(BUDGETS, SPENT, ACCOUNTS, st.builds(Spent, st.just("claude"), ACCOUNTS, USED))
def test_whoever_uses_more_never_gets_more_room(
    budget: BudgetSection, spents: list[Spent], account: BudgetAccount, more: Spent
) -> None:
    before, after = lines(budget, spents, account), lines(budget, [*spents, more], account)
    assert all(one.used <= other.used + 1e-6 for one, other in zip(before, after, strict=True))


@given(SPENT, USED)
def test_what_others_use_is_not_on_ones_own_account(spents: list[Spent], used: UsageTotal) -> None:
    budget = BudgetSection(
        user=DailyLimit(usd_per_day=1), thread=DailyLimit(usd_per_day=1), job=DailyLimit(usd_per_day=1)
    )
    others = [
        Spent("claude", BudgetAccount("U0BEN", "C1:other"), used),
        Spent("claude", BudgetAccount("U0ANA", "C1:other", "weekly"), used),
    ]
    assert lines(budget, [*spents, *others], ANA) == lines(budget, spents, ANA)
    assert lines(budget, [*spents, *others], NIGHTLY) == lines(budget, spents, NIGHTLY)


@pytest.mark.parametrize(
    ("budget", "spents", "account", "key"),
    [
        (BudgetSection(), [spent(ANA, 1e6)], ANA, None),
        (BudgetSection(repo=DailyLimit(usd_per_day=5)), [spent(ANA, 3), spent(BEN, 1.99)], ANA, None),
        (
            BudgetSection(repo=DailyLimit(usd_per_day=5)),
            [spent(ANA, 3), spent(BEN, 2)],
            ANA,
            "budget.repo.usdPerDay",
        ),
        (BudgetSection(user=DailyLimit(turns_per_day=2)), [spent(BEN, turns=9)], ANA, None),
        (
            BudgetSection(user=DailyLimit(turns_per_day=2)),
            [spent(ANA, turns=2)],
            ANA,
            "budget.user.turnsPerDay",
        ),
        (BudgetSection(user=DailyLimit(turns_per_day=2)), [spent(NIGHTLY, turns=9)], NIGHTLY, None),
        (
            BudgetSection(thread=DailyLimit(tokens_per_day=10)),
            [spent(BEN, tokens=10)],
            ANA,
            "budget.thread.tokensPerDay",
        ),
        (
            BudgetSection(job=DailyLimit(minutes_per_day=5)),
            [spent(NIGHTLY, minutes=5)],
            NIGHTLY,
            "budget.job.minutesPerDay",
        ),
        (BudgetSection(job=DailyLimit(minutes_per_day=5)), [spent(NIGHTLY, minutes=5)], ANA, None),
        (BudgetSection(repo=DailyLimit(usd_per_day=0)), [], ANA, "budget.repo.usdPerDay"),
    ],
)
def test_which_limit_leaves_no_room(
    budget: BudgetSection, spents: list[Spent], account: BudgetAccount, key: str | None
) -> None:
    found = used_up(lines(budget, spents, account))
    assert (found.key if found else None) == key


def test_only_turns_that_ask_a_model_are_on_a_budget() -> None:
    config = Config(commands=BUILTIN_COMMANDS)
    assert [
        name for name in ("claude", "rehearsal", "image", "run", "checks", "undo") if uses_model(config, name)
    ] == [
        "claude",
        "rehearsal",
        "image",
    ]


def test_the_words_name_what_is_used_up_and_the_key() -> None:
    budget = BudgetSection(
        user=DailyLimit(usd_per_day=5, turns_per_day=10),
        repo=DailyLimit(tokens_per_day=2_000_000, minutes_per_day=90),
    )
    found = lines(budget, [spent(ANA, 5.02, tokens=1_234_000, turns=3, minutes=61)], ANA)
    line = used_up(found)
    assert line is not None
    assert used_up_text(line) == (
        "Your budget for today is used up: $5.02 of $5.00. "
        "To continue sooner, raise budget.user.usdPerDay in the configuration, then press Try now."
    )
    assert overview(found) == (
        "Budget today: repository 1.2M of 2.0M tokens, 1h01m of 1h30m · you $5.02 of $5.00, 3 of 10 runs"
    )
    assert overview(lines(BudgetSection(), [], ANA)) == ""


def test_the_total_counts_what_others_use_and_names_its_period() -> None:
    budget = BudgetSection(total=TotalLimit(usd_per_day=5, turns_per_month=10))
    spents, beyond = (
        [spent(ANA, 2, turns=3), spent(NIGHTLY, 1)],
        Beyond(UsageTotal(1.5), UsageTotal(20, turns=6)),
    )
    found = lines(budget, spents, BEN, beyond)
    assert [(line.key, line.used) for line in found] == [
        ("budget.total.usdPerDay", 4.5),
        ("budget.total.turnsPerMonth", 10),
    ]
    line = used_up(found)
    assert line is not None
    assert used_up_text(line) == (
        "The total budget for this month is used up: 10 of 10 runs. "
        "To continue sooner, raise budget.total.turnsPerMonth in the configuration, then press Try now."
    )
    assert lines(budget, spents, BEN) == ()


@given(BUDGETS, SPENT, ACCOUNTS, USED, USED)
def test_what_others_use_never_makes_room(
    budget: BudgetSection, spents: list[Spent], account: BudgetAccount, day: UsageTotal, month: UsageTotal
) -> None:
    alone = lines(budget, spents, account, Beyond())
    together = lines(budget, spents, account, Beyond(day, month))
    assert [line.key for line in alone] == [line.key for line in together]
    assert all(one.used <= other.used for one, other in zip(alone, together, strict=True))


@given(MOMENTS, ZONES)
def test_every_moment_lies_in_one_month(now: datetime, zone: ZoneInfo) -> None:
    first, next_one = month_of(now, zone)
    assert first <= now < next_one
    assert first.astimezone(zone).date().replace(day=1) == now.astimezone(zone).date().replace(day=1)
    assert month_of(next_one, zone)[0] == next_one
    assert end_of("day", now, zone) <= end_of("month", now, zone) == next_one


def test_every_scope_of_the_configuration_is_held_to() -> None:
    scopes = [name for name in BudgetSection.__struct_fields__ if name != "timezone"]
    assert sorted(scopes) == sorted(SCOPES)

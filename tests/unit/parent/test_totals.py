"""What all but one have used is what they have used together, and is not added up for each of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from codebutler.config.registry import RepoEntry
from codebutler.config.schema import Config
from codebutler.intake.repos import RepoTable, Served
from codebutler.observe.ledger import together
from codebutler.parent.spending import Days, TotalSums, between
from codebutler.protocol.messages import DayUse

NOW = datetime(2026, 3, 20, 23, 30, tzinfo=UTC)
TODAY = NOW.date()


def table(*names: str) -> RepoTable:
    entries = [RepoEntry(name=name, path=f"laptop:{name}", channel_id=f"C-{name}") for name in names]
    return RepoTable(tuple(Served(each, Config(), (), trusted=True) for each in entries))


USES = st.builds(
    DayUse,
    runs=st.integers(0, 10**6),
    tokens=st.integers(0, 10**15),
    usd=st.integers(0, 10**9).map(lambda cents: cents / 100),
    minutes=st.integers(0, 10**6).map(float),
)


@given(
    st.lists(st.dictionaries(st.dates(date(2026, 2, 20), TODAY), USES, max_size=5), min_size=1, max_size=5)
)
def test_the_others_are_all_without_this_one(found: list[dict[date, DayUse]]) -> None:
    names = [f"r{number}" for number in range(len(found))]
    days: dict[str, Days] = dict(zip(names, found, strict=True))
    served = table(*names)
    sums = TotalSums(lambda: served, days.__getitem__)
    for name in names:
        day, month = sums.others(name, NOW)
        others = [days[each] for each in names if each != name]
        for told, count in ((day, 1), (month, TODAY.day)):
            wanted = together(between(each, TODAY, count) for each in others)
            assert abs(told.usd - wanted.usd) < 1e-6
            assert replace(told, usd=wanted.usd) == wanted


def test_what_thousands_use_is_added_up_once_for_each_change() -> None:
    names = [f"r{number}" for number in range(2000)]
    days: dict[str, Days] = {name: {TODAY: DayUse(runs=1)} for name in names}
    served, asked = table(*names), []

    def of(name: str) -> Days:
        asked.append(name)
        return days[name]

    sums = TotalSums(lambda: served, of)
    assert {sums.others(name, NOW)[0].runs for name in names} == {1999}
    assert len(asked) == 2000
    days["r1"] = {TODAY: DayUse(runs=3)}
    sums.changed()
    assert [sums.others(name, NOW)[0].runs for name in ("r1", "r2")] == [1999, 2001]
    assert len(asked) == 4000


def test_days_end_and_repositories_come() -> None:
    found = [table("shop", "blog")]
    days: dict[str, Days] = {"shop": {TODAY: DayUse(runs=1)}, "blog": {TODAY: DayUse(runs=2)}, "new": {}}
    sums = TotalSums(lambda: found[0], days.__getitem__)
    assert sums.others("shop", NOW)[0].runs == 2
    assert sums.others("new", NOW)[0].runs == 3
    tomorrow = NOW + timedelta(hours=1)
    day, month = sums.others("shop", tomorrow)
    assert (day.runs, month.runs) == (0, 2)
    days["new"] = {TODAY: DayUse(runs=5)}
    found[0] = table("shop", "blog", "new")
    assert sums.others("shop", NOW)[0].runs == 7

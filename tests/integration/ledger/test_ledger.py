"""The ledger is the runs' own rows, whichever version wrote them, beside a writer and without one."""

from __future__ import annotations

import csv
import io
import math
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from codebutler.domain.errors import StoreDamagedError, StoreError
from codebutler.observe.ledger import KEYS, Period, by_day, period, read, sums, together, total, used
from codebutler_worker.conversation.parked import CONTINUED_REASON
from codebutler_worker.memory.review import PURPOSE
from codebutler_worker.runtime.budget import NOBODY
from codebutler_worker.store.opening import downgrade, migrate_store, open_store
from codebutler_worker.store.rows import ExpenseRow, TurnRow, UsageTotal
from codebutler_worker.store.unit_of_work import UnitOfWork, iso
from tests.clock import ManualClock

GOLDEN = Path(__file__).parents[2] / "golden" / "store"
BEGIN = datetime(2026, 3, 28, tzinfo=UTC)
ZONE = ZoneInfo("Europe/Berlin")
"""Its clocks change on 29 March."""
DURING = Period(date(2026, 3, 27), date(2026, 4, 2), ZONE)
DONE = TurnRow(
    id="t1",
    conversation="C1:1700000001.000002",
    channel_id="C1",
    thread="1700000001.000002",
    agent="claude",
    created_at=iso(BEGIN),
    started_at=iso(BEGIN),
    finished_at=iso(BEGIN + timedelta(minutes=2)),
    state="done",
    session_id="s1",
    user_id="U1",
    model="sonnet",
    input_tokens=1200,
    output_tokens=34,
    cost_usd=0.12,
    worked_s=90.0,
    files=2,
    commits="abc1234 def5678",
    checks="passed",
)
STATES = ("done", "failed", "stopped", "interrupted", "parked")


def store_of(repo: Path) -> Path:
    return repo / ".codebutler" / "store.db"


async def written(repo: Path, *turns: TurnRow, expenses: tuple[ExpenseRow, ...] = ()) -> None:
    def work(uow: UnitOfWork) -> None:
        for turn in turns:
            uow.turns.add(turn)
        for expense in expenses:
            uow.expenses.add(expense)

    async with open_store(store_of(repo), ManualClock()) as store:
        await store.run(work)


async def test_a_row_says_all_of_a_run(tmp_path: Path) -> None:
    await written(tmp_path, DONE)
    (row,) = read("shop", tmp_path, DURING)
    assert (row.repo, row.run, row.user, row.agent, row.model) == ("shop", "t1", "U1", "claude", "sonnet")
    assert (row.session, row.outcome, row.checks, row.files) == ("s1", "done", "passed", 2)
    assert (row.input_tokens, row.output_tokens, row.cost_usd, row.duration_s) == (1200, 34, 0.12, 90.0)
    assert row.commits == ("abc1234", "def5678")
    assert row.link == "https://slack.com/archives/C1/p1700000001000002"
    assert not list(tmp_path.glob(".codebutler/store.db-*"))


async def test_it_is_read_while_a_worker_writes(tmp_path: Path) -> None:
    async with open_store(store_of(tmp_path), ManualClock()) as store:
        await store.run(lambda uow: uow.turns.add(DONE))
        assert [row.run for row in read("shop", tmp_path, DURING)] == ["t1"]
        await store.run(lambda uow: uow.turns.add(replace(DONE, id="t2")))
        assert [row.run for row in read("shop", tmp_path, DURING)] == ["t1", "t2"]


async def test_what_has_not_run_or_still_runs_is_not_in_it(tmp_path: Path) -> None:
    await written(
        tmp_path,
        replace(DONE, id="withdrawn", started_at=None, state="stopped"),
        replace(DONE, id="runs", state="running", finished_at=None),
        replace(DONE, id="early", started_at=iso(BEGIN - timedelta(days=9))),
        replace(DONE, id="carried on", state="stopped", reason=CONTINUED_REASON),
        replace(DONE, id="unchanged", files=None, tree_before="a" * 40, tree_after="a" * 40),
    )
    assert [(row.run, row.outcome) for row in read("shop", tmp_path, DURING)] == [
        ("carried on", "continued"),
        ("unchanged", "done"),
    ]
    assert read("shop", tmp_path, DURING)[1].files == 0


amounts = st.floats(0, 1e4, allow_nan=False)
turns = st.builds(
    lambda state, user, job, agent, usd, tokens, worked_s, hours: replace(
        DONE,
        state=state,
        user_id=user,
        job=job,
        agent=agent,
        cost_usd=usd,
        input_tokens=tokens,
        worked_s=worked_s,
        started_at=iso(BEGIN + timedelta(hours=hours)),
    ),
    st.sampled_from(STATES),
    st.sampled_from(["U1", "U2"]),
    st.sampled_from(["", "nightly"]),
    st.sampled_from(["claude", "kimi"]),
    st.none() | amounts,
    st.integers(0, 10**9),
    amounts,
    st.integers(0, 90),
)
spent = st.builds(
    lambda usd, tokens, hours: ExpenseRow(
        purpose=PURPOSE,
        conversation="C1:1.0",
        model="m",
        input_tokens=tokens,
        output_tokens=1,
        cost_usd=usd,
        at=iso(BEGIN + timedelta(hours=hours)),
    ),
    st.none() | amounts,
    st.integers(0, 10**9),
    st.integers(0, 90),
)


@settings(max_examples=30, deadline=None)
@given(made=st.lists(turns, max_size=12), asked=st.lists(spent, max_size=4))
async def test_its_sums_are_those_of_the_runs_however_they_are_grouped(
    tmp_path_factory: pytest.TempPathFactory, made: list[TurnRow], asked: list[ExpenseRow]
) -> None:
    repo = tmp_path_factory.mktemp("sums")
    made = [replace(turn, id=f"t{number}") for number, turn in enumerate(made)]
    async with open_store(store_of(repo), ManualClock()) as store:

        def work(uow: UnitOfWork) -> UsageTotal:
            for turn in made:
                uow.turns.add(turn)
            for expense in asked:
                uow.expenses.add(expense)
            # What budgets count.
            return sum((one.used for one in uow.turns.spent_between(*DURING.ends, NOBODY)), UsageTotal())

        counted = await store.run(work)
        rows = read("shop", repo, DURING)
    used = total(rows)
    assert used.runs == len(made) == counted.turns
    assert used.tokens == sum(turn.input_tokens + turn.output_tokens for turn in made) + sum(
        expense.input_tokens + 1 for expense in asked
    )
    assert used.tokens == counted.tokens
    costs = [turn.cost_usd or 0.0 for turn in made] + [expense.cost_usd or 0.0 for expense in asked]
    assert used.usd == math.fsum(costs)
    assert math.isclose(used.usd, counted.usd, abs_tol=1e-9)
    assert math.isclose(used.minutes, counted.minutes, abs_tol=1e-9)
    for groups in (
        [*by_day(rows, DURING).values()],
        *([*sums(rows, key).values()] for key in KEYS.values()),
    ):
        assert sum(group.runs for group in groups) == used.runs
        assert sum(group.tokens for group in groups) == used.tokens
        assert math.isclose(sum(group.usd for group in groups), used.usd, abs_tol=1e-9)


async def test_a_day_is_one_of_the_zone_also_when_clocks_change(tmp_path: Path) -> None:
    moments = ["2026-03-28T22:59:59", "2026-03-28T23:00:00", "2026-03-29T21:59:59", "2026-03-29T22:00:00"]
    rows = [
        replace(DONE, id=f"t{number}", started_at=f"{moment}.000000+00:00")
        for number, moment in enumerate(moments)
    ]
    await written(tmp_path, *rows)
    days = by_day(read("shop", tmp_path, DURING), DURING)
    assert {day.isoformat(): used.runs for day, used in days.items() if used.runs} == {
        "2026-03-28": 1,
        "2026-03-29": 2,
        "2026-03-30": 1,
    }
    assert len(days) == 6


@pytest.mark.parametrize("revision", ["0003", "0006", "0010", "0014", "0018"])
async def test_an_older_store_is_read_as_it_is(tmp_path: Path, revision: str) -> None:
    await written(tmp_path, DONE)
    downgrade(store_of(tmp_path), revision)
    (row,) = read("shop", tmp_path, DURING)
    assert (row.run, row.cost_usd, row.model, row.commits, row.files) == ("t1", 0.12, "", (), None)
    assert migrate_store(store_of(tmp_path)).from_revision == revision
    assert [migrated.run for migrated in read("shop", tmp_path, DURING)] == ["t1"]


@pytest.mark.parametrize("golden", ["whatsapp.sql", "0013.sql"])
def test_golden_stores_are_read_before_and_after_their_migration(tmp_path: Path, golden: str) -> None:
    store = store_of(tmp_path)
    store.parent.mkdir()
    with closing(sqlite3.connect(store)) as connection:
        connection.executescript((GOLDEN / golden).read_text())
    ever = Period(date(2020, 1, 1), date(2029, 1, 1), UTC)
    before = [(row.run, row.at, row.cost_usd) for row in read("shop", tmp_path, ever)]
    migrate_store(store)
    assert [(row.run, row.at, row.cost_usd) for row in read("shop", tmp_path, ever)] == before


def test_a_repository_without_a_store_has_no_rows(tmp_path: Path) -> None:
    assert read("shop", tmp_path, DURING) == []
    assert read("shop", tmp_path / "gone", DURING) == []


async def test_a_store_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    await written(there, DONE)
    here.mkdir()
    (here / ".codebutler").symlink_to(there / ".codebutler")
    assert read("shop", here, DURING) == []
    (here / ".codebutler").unlink()
    (here / ".codebutler").mkdir()
    store_of(here).symlink_to(store_of(there))
    with pytest.raises(StoreError, match="not a regular file"):
        read("shop", here, DURING)


async def test_code_in_a_store_does_not_run(tmp_path: Path) -> None:
    await written(tmp_path, DONE)
    with closing(sqlite3.connect(store_of(tmp_path))) as connection:
        connection.executescript("ALTER TABLE turns RENAME TO own; CREATE VIEW turns AS SELECT * FROM own;")
    assert read("shop", tmp_path, DURING) == []


async def test_false_figures_stay_within_what_can_be_told(tmp_path: Path) -> None:
    await written(tmp_path, DONE)
    with closing(sqlite3.connect(store_of(tmp_path))) as connection, connection:
        connection.execute("UPDATE turns SET input_tokens = 1e300, output_tokens = -5, cost_usd = 9e999")
    (row,) = read("shop", tmp_path, DURING)
    assert (row.input_tokens, row.output_tokens, row.cost_usd) == (10**15, 0, 1e15)
    assert total([row, row]) == together([total([row, row])])


async def test_a_damaged_store_is_an_error_in_words(tmp_path: Path) -> None:
    await written(tmp_path, DONE)
    with closing(sqlite3.connect(store_of(tmp_path))) as connection, connection:
        connection.execute("UPDATE turns SET input_tokens = 'many'")
    with pytest.raises(StoreDamagedError, match="cannot be read"):
        read("shop", tmp_path, DURING)
    with closing(sqlite3.connect(store_of(tmp_path))) as connection, connection:
        connection.execute("UPDATE turns SET input_tokens = 1, started_at = '2026-03-28T99:99'")
    with pytest.raises(StoreDamagedError, match="cannot be read"):
        read("shop", tmp_path, DURING)
    store_of(tmp_path).write_bytes(b"no database" * 1000)
    with pytest.raises(StoreDamagedError, match="not a database"):
        read("shop", tmp_path, DURING)


@pytest.mark.parametrize(
    ("since", "until", "first", "last"),
    [
        ("7d", "", "2026-02-08", "2026-02-14"),
        ("1d", "2026-02-01", "2026-02-01", "2026-02-01"),
        ("2026-01-01", "3d", "2026-01-01", "2026-02-12"),
    ],
)
def test_periods(since: str, until: str, first: str, last: str) -> None:
    found = period(since, until, datetime(2026, 2, 14, 12, tzinfo=UTC), UTC)
    assert (found.days[0].isoformat(), found.days[-1].isoformat()) == (first, last)


@pytest.mark.parametrize("since", ["", "x", "0d", "2026-02-30", "2026-3-1", "9999d", "2026-02-15"])
def test_what_is_no_period_is_said(since: str) -> None:
    with pytest.raises(ValueError, match=r"neither a date|is after|at most"):
        period(since, "", datetime(2026, 2, 14, tzinfo=UTC), UTC)


async def test_no_cell_of_the_csv_is_a_formula(tmp_path: Path) -> None:
    from codebutler.cli.ledger import to_csv

    evil = '=HYPERLINK("http://x")'
    await written(tmp_path, replace(DONE, model=evil, agent="+1", user_id="@x", session_id='a,"b"\nc'))
    (_, row) = csv.reader(io.StringIO(to_csv(read("shop", tmp_path, DURING))))
    cells = dict(zip(row, row, strict=True))
    assert f"'{evil}" in cells
    assert "'+1" in cells
    assert "'@x" in cells
    assert 'a,"b"\nc' in cells
    assert not [cell for cell in row if cell[:1] in ("=", "+", "-", "@", "\t", "\r")]


async def test_no_cell_of_the_csv_is_a_formula_for_whoever_separates_otherwise(tmp_path: Path) -> None:
    """A spreadsheet in another language takes ``;`` for the separator, and some take a tab or a bar."""
    from codebutler.cli.ledger import to_csv

    call = "=HYPERLINK(1)"
    evil = replace(
        DONE, model=f"m;{call}", agent=f'a"; "{call}', session_id=f"s\t{call}|{call}", job=f" {call}"
    )
    await written(tmp_path, evil)
    text = to_csv(read("shop", tmp_path, DURING))
    for separator in ",;\t|":
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE):
            for row in csv.reader(io.StringIO(text), delimiter=separator, quoting=quoting):
                assert [cell for cell in row if cell.strip(' \t"').startswith("=")] == [], (
                    separator,
                    quoting,
                )
    assert "m;'=HYPERLINK(1)" in text


async def test_the_sums_of_a_day_are_those_of_its_rows(tmp_path: Path) -> None:
    runs = [
        replace(DONE, id="a", cost_usd=1.5, input_tokens=10, output_tokens=5, worked_s=60.0),
        replace(DONE, id="b", cost_usd=None, input_tokens=1, output_tokens=2, worked_s=0.0),
        replace(DONE, id="c", agent="kimi", cost_usd=2.0),
        replace(DONE, id="other day", started_at=iso(BEGIN - timedelta(days=9))),
    ]
    await written(tmp_path, *runs)
    found = used(tmp_path, DURING)
    rows = read("shop", tmp_path, DURING)
    assert len(rows) == 3
    for agent in ("claude", "kimi"):
        summed = together(day[agent] for day in found.values() if agent in day)
        assert summed == total(row for row in rows if row.agent == agent)
    assert used(tmp_path / "no repository", DURING) == {}


async def test_a_store_of_nonsense_has_sums_within_bounds(tmp_path: Path) -> None:
    await written(tmp_path, DONE)
    with closing(sqlite3.connect(store_of(tmp_path))) as connection, connection:
        connection.execute("UPDATE turns SET cost_usd = 9e999, input_tokens = -5, output_tokens = 'many'")
    [use] = [day["claude"] for day in used(tmp_path, DURING).values() if day]
    assert (use.usd, use.tokens, use.runs) == (1e15, 0, 1)

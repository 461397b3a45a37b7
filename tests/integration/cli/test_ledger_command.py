"""`codebutler ledger`, without a supervisor: what every store has, together."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.config.registry import Registry, RepoEntry
from codebutler.protocol.capabilities import LedgerRow
from codebutler_worker.store.opening import open_store
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork, iso
from tests.clock import ManualClock
from tests.integration.cli.conftest import Cli

NOW = datetime.now(UTC)
RUN = TurnRow(
    id="t1",
    conversation="C1:1.0",
    channel_id="C1",
    thread="1700000001.000002",
    agent="claude",
    created_at=iso(NOW),
    started_at=iso(NOW),
    finished_at=iso(NOW),
    state="done",
    user_id="U1",
    model="sonnet",
    input_tokens=1200,
    output_tokens=300,
    cost_usd=0.25,
    worked_s=90.0,
    files=2,
    commits="abc1234",
    checks="passed",
)


@pytest.fixture
async def shops(cli: Cli, tmp_path: Path) -> Cli:
    """Two repositories: one with three runs, the other with one."""
    ago = iso(NOW - timedelta(days=40))
    turns = {
        "shop": (
            RUN,
            replace(RUN, id="t2", user_id="U2", cost_usd=1.0),
            replace(RUN, id="t3", started_at=ago),
        ),
        "blog": (replace(RUN, id="t4", job="nightly", cost_usd=None, model="\x1b[31mred"),),
    }
    for name, rows in turns.items():
        (tmp_path / name).mkdir()

        def work(uow: UnitOfWork, rows: tuple[TurnRow, ...] = rows) -> None:
            for row in rows:
                uow.turns.add(row)

        async with open_store(tmp_path / name / ".codebutler" / "store.db", ManualClock()) as store:
            await store.run(work)
    cli.home.ensure()
    entries = tuple(RepoEntry(name=name, path=str(tmp_path / name)) for name in turns)
    Registry(cli.home).update(lambda _: entries)
    return cli


def test_a_table_with_its_total(shops: Cli) -> None:
    result = shops("ledger")
    header, *rows, empty, last = result.out.splitlines()
    assert (result.code, empty) == (0, "")
    assert header.split() == [
        *(
            "STARTED",
            "REPO",
            "WHO",
            "AGENT",
            "OUTCOME",
            "COST",
            "TOKENS",
            "TIME",
            "FILES",
            "COMMITS",
            "CHECKS",
        )
    ]
    assert last == "Total: 3 runs, 4.5k tokens, $1.25, 4.5 min"
    assert any("shop  U1" in row and "claude (sonnet)" in row and "$0.25" in row for row in rows)
    assert any("blog  job nightly" in row and "?[31mred" in row for row in rows)
    assert len(rows) == 3


def test_it_can_be_narrowed(shops: Cli) -> None:
    def found(*options: str) -> list[str]:
        return sorted(row["run"] for row in json.loads(shops("ledger", "--json", *options).out)["rows"])

    assert found() == ["t1", "t2", "t4"]
    assert found("--since", "60d") == ["t1", "t2", "t3", "t4"]
    assert found("--since", "60d", "--until", "10d") == ["t3"]
    assert found("--repo", "blog") == ["t4"]
    assert found("--user", "U2") == ["t2"]


def test_json_has_every_field_and_the_total(shops: Cli) -> None:
    told = json.loads(shops("ledger", "--json", "--repo", "shop", "--user", "U1").out)
    assert told["total"] == {"runs": 1, "tokens": 1500, "usd": 0.25, "minutes": 1.5}
    (row,) = told["rows"]
    assert set(row) == set(LedgerRow.__struct_fields__)
    assert (row["commits"], row["files"], row["checks"]) == (["abc1234"], 2, "passed")
    assert row["link"].endswith("/C1/p1700000001000002")


def test_csv_has_a_line_for_each_run(shops: Cli) -> None:
    rows = [*csv.DictReader(io.StringIO(shops("ledger", "--csv").out, newline=""))]
    assert [row["run"] for row in rows] == ["t1", "t2", "t4"]
    assert [row["cost_usd"] for row in rows] == ["0.25", "1.0", ""]


def test_no_runs_are_said_so(shops: Cli) -> None:
    assert "No runs in this period." in shops("ledger", "--user", "nobody").out


def test_a_store_that_cannot_be_read_does_not_hide_the_others(shops: Cli, tmp_path: Path) -> None:
    (tmp_path / "blog" / ".codebutler" / "store.db").write_bytes(b"rubbish" * 1000)
    result = shops("ledger", "--json")
    assert result.code == 0
    assert "warning: skipping blog" in result.err
    assert [row["run"] for row in json.loads(result.out)["rows"]] == ["t1", "t2"]
    shops.fails("ledger", "--repo", "blog", code=1, said="not a database")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--since", "yesterday"), "neither a date"),
        (("--until", "9999-12-31", "--since", "1d"), "neither a date"),
        (("--since", "0001-01-01", "--until", "0001-01-02"), "neither a date"),
        (("--json", "--csv"), "choose either"),
        (("--repo", "nope"), "nope"),
    ],
)
def test_what_cannot_be_shown_is_said(shops: Cli, options: tuple[str, ...], said: str) -> None:
    result = shops("ledger", *options)
    assert result.code in (1, 2)
    assert said in result.err

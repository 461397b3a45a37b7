"""The gateway's table of what hosts have told of their runs."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from codebutler.domain.errors import StoreError
from codebutler.domain.refs import ConversationRef, PersonRef
from codebutler.observe import hosted_runs
from codebutler.observe.hosted_runs import HostedRuns, read_hosted
from codebutler.observe.ledger import Period
from codebutler.protocol.capabilities import LedgerRow

DURING = Period(date(2026, 3, 27), date(2026, 4, 2), ZoneInfo("Europe/Berlin"))
ROW = LedgerRow(
    repo="shop",
    run="t1",
    at="2026-03-28T10:00:00.000000+00:00",
    ended="2026-03-28T10:02:00.000000+00:00",
    user=PersonRef("U1"),
    job="",
    agent="claude",
    model="sonnet",
    session="s1",
    outcome="done",
    input_tokens=1200,
    output_tokens=34,
    cost_usd=0.12,
    duration_s=90.0,
    files=None,
    commits=(),
    checks="",
    channel=ConversationRef("C1"),
    thread="1700000001.000002",
    link="https://slack.com/archives/C1/p1700000001000002",
)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[HostedRuns]:
    with closing(HostedRuns(tmp_path / "runs.db")) as opened:
        yield opened


def test_a_row_that_has_changed_replaces_the_one_before(table: HostedRuns, tmp_path: Path) -> None:
    table.keep("laptop", "shop", [ROW], ())
    later = replace(ROW, files=2, commits=("abc1234",), checks="passed")
    table.keep("laptop", "shop", [later], ())
    assert table.read("shop", DURING, programs=False) == [later]
    assert table.read("blog", DURING, programs=False) == []
    assert read_hosted(tmp_path / "runs.db", "shop", DURING) == [later]


def test_it_is_read_without_a_gateway_and_knows_where_its_hosts_go_on(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    assert read_hosted(path, "shop", DURING) == []
    with closing(HostedRuns(path)) as table:
        assert table.known("laptop", "shop") == ""
        table.keep("laptop", "shop", [ROW, replace(ROW, run="t2", ended="2026-03-29T10:00:00+00:00")], ())
    assert {row.run for row in read_hosted(path, "shop", DURING)} == {"t1", "t2"}
    with closing(HostedRuns(path)) as table:
        assert table.known("laptop", "shop") == "2026-03-29T10:00:00.000000+00:00"
        assert table.known("tower", "shop") == "", "another host has to tell all of it"


def test_programs_cost_nothing_and_are_in_the_ledger_only(table: HostedRuns, tmp_path: Path) -> None:
    table.keep("laptop", "shop", [ROW, replace(ROW, run="t2", agent="bash")], {"bash"})
    assert [row.agent for row in table.read("shop", DURING, programs=False)] == ["claude"]
    assert len(read_hosted(tmp_path / "runs.db", "shop", DURING)) == 2


def test_our_own_requests_have_no_id_and_are_kept_once(table: HostedRuns) -> None:
    review = replace(ROW, run="", agent="(memory)")
    for _ in range(2):
        table.keep("laptop", "shop", [review, replace(review, agent="(title)")], ())
    assert len(table.read("shop", DURING, programs=False)) == 2


def test_a_host_tells_of_its_own_and_within_bounds(
    table: HostedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = replace(ROW, repo="blog", link="https://evil.example")
    bad = [
        replace(ROW, run="t2", at="yesterday"),
        replace(ROW, run="t3", ended="0001-01-01T00:00:00+14:00"),
        replace(ROW, run="t4", checks="x" * hosted_runs.MAX_ROW_BYTES),
    ]
    table.keep("laptop", "shop", [evil, *bad], ())
    assert table.read("shop", DURING, programs=False) == [ROW]
    assert table.read("blog", DURING, programs=False) == []
    monkeypatch.setattr(hosted_runs, "MOST_ROWS", 3)
    many = [replace(ROW, run=f"m{n}", at=f"2026-03-29T10:00:0{n}+00:00") for n in range(5)]
    table.keep("laptop", "shop", many, ())
    assert [row.run for row in table.read("shop", DURING, programs=False)] == ["m2", "m3", "m4"]


def test_a_file_that_is_not_ours_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    HostedRuns(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9'")
    with pytest.raises(StoreError, match="move it away, and the hosts fill a new one"):
        HostedRuns(path)
    shutil.copy(__file__, path)
    with pytest.raises(StoreError):
        HostedRuns(path)
    with pytest.raises(StoreError):
        read_hosted(path, "shop", DURING)

"""`codebutler ledger`: what runs were and what they cost, from the stores of all repositories."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from codebutler.cli.context import effective_config, home, known_repositories
from codebutler.cli.output import print_json, print_line, print_table, warn
from codebutler.config.registry import Registry, find
from codebutler.domain.clock import SystemClock, zone_of
from codebutler.domain.errors import CodeButlerError, StoreError
from codebutler.observe.hosted_runs import read_hosted
from codebutler.observe.ledger import Period, day_of, period, read, total, words
from codebutler.protocol.capabilities import LedgerRow
from codebutler.text.wording import amount, thousands

DEFAULT = "30d"
_FORMULA = re.compile(r"(?:^|(?<=[;,|\t\r\n]))(?=[\s\"'\0]*[=+\-@＝＋－＠%])|^(?=[\t\r\n])")
"""Positions after which a spreadsheet would run a formula: the beginning of a cell, also for spreadsheets that use
another separator, as many do depending on their language."""
HEADER = (
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


def ledger(
    since: Annotated[
        str,
        typer.Option("--since", metavar="DAY", help="The first day: 2026-02-14, or 7d for the last week."),
    ] = DEFAULT,
    until: Annotated[str, typer.Option("--until", metavar="DAY", help="The last day, inclusive.")] = "",
    repo: Annotated[
        str, typer.Option("--repo", help="Only this repository's runs.", autocompletion=known_repositories)
    ] = "",
    user: Annotated[str, typer.Option("--user", help="Only runs of the person with this ID.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for spreadsheets.")] = False,
) -> None:
    """Show every run with its outcome and cost, with or without a running supervisor."""
    if as_json and as_csv:
        raise typer.BadParameter("choose either --json or --csv", param_hint="'--csv'")
    during = _period(since, until)
    rows = [row for row in _read_rows(during, repo) if user in ("", row.user)]
    if as_json:
        print_json({"rows": rows, "total": total(rows)})
    elif as_csv:
        sys.stdout.write(to_csv(rows))
    elif not rows:
        print_line("No runs in this period. `codebutler ledger --since 365d` looks further back.")
    else:
        print_table(HEADER, [_cells(row, during) for row in rows])
        print_line()
        print_line(f"Total: {words(total(rows))}")


def _period(since: str, until: str) -> Period:
    """The period, in days as budgets count them."""
    try:
        return period(since, until, SystemClock().now(), zone_of(effective_config().config.budget.timezone))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--since' / '--until'") from error


def _read_rows(during: Period, name: str) -> list[LedgerRow]:
    """The rows. A store that cannot be read is reported, and the others are still shown."""
    entries = Registry(home()).load()
    chosen = (find(entries, name),) if name else entries
    found: list[LedgerRow] = []
    failures: list[str] = []
    for entry in chosen:
        try:
            if entry.host:
                found += read_hosted(home().hosted_runs, entry.name, during)
            else:
                found += read(entry.name, Path(entry.path), during)
        except StoreError as error:
            failures.append(f"skipping {entry.name}: {error}")
    if failures and len(failures) == len(chosen):
        raise CodeButlerError("; ".join(failures))
    for failure in failures:
        warn(failure)
    return sorted(found, key=lambda row: row.at)


def _cells(row: LedgerRow, during: Period) -> tuple[str, ...]:
    return (
        f"{day_of(row.at, during.zone)} {datetime.fromisoformat(row.at).astimezone(during.zone):%H:%M}",
        row.repo,
        f"job {row.job}" if row.job else row.user or "-",
        f"{row.agent} ({row.model})" if row.model else row.agent,
        row.outcome,
        "-" if row.cost_usd is None else amount("usd", row.cost_usd),
        thousands(row.input_tokens + row.output_tokens),
        amount("minutes", row.duration_s / 60),
        "-" if row.files is None else str(row.files),
        str(len(row.commits)),
        row.checks or "-",
    )


def to_csv(rows: Sequence[LedgerRow]) -> str:
    """RFC 4180, a line for each run. No cell is a formula. Pure."""
    out = io.StringIO()
    writer = csv.writer(out)
    names = LedgerRow.__struct_fields__
    writer.writerow(names)
    for row in rows:
        values = msgspec.structs.asdict(row) | {"commits": " ".join(row.commits)}
        cells = [values[name] for name in names]
        # Agents and people choose some of the texts.
        writer.writerow([_FORMULA.sub("'", each) if isinstance(each, str) else each for each in cells])
    return out.getvalue()

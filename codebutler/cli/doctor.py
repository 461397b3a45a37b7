"""``codebutler doctor``: problems in detail, and the rest in a line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from codebutler.cli.context import environment, home
from codebutler.cli.output import Style, is_interactive, painted, print_json, printable
from codebutler.protocol.messages import Finding, Level

CLEAR = "\r\x1b[K"
STYLES: dict[Level, Style] = {"ok": "green", "warn": "yellow", "FAIL": "red"}


def run(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Also ask each installed agent for an answer; may cost a little.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Also show the checks that passed.")] = False,
) -> None:
    """Check tokens, scopes, channels, agents, sandbox, stores, disk and clock; exit code 1 if something fails."""
    findings = asyncio.run(_examine(live=live, shown=not as_json))
    counts = {level: sum(each.level == level for each in findings) for level in ("ok", "warn", "FAIL")}
    if as_json:
        print_json({"ok": not counts["FAIL"], "counts": counts, "findings": findings})
    else:
        sys.stdout.writelines(f"{line}\n" for line in report(findings, every=every))
    if counts["FAIL"]:
        raise typer.Exit(1)


def report(findings: Sequence[Finding], *, every: bool) -> Iterator[str]:
    """The findings by area; passed checks in one line unless ``every``; the totals last."""
    shown = [each for each in findings if every or each.level != "ok"]
    for area in dict.fromkeys(each.area for each in shown):
        yield painted(area.capitalize(), "bold")
        yield from (_line(each) for each in shown if each.area == area)
    fine = [each for each in findings if each.level == "ok"]
    if fine and not every:
        areas = ", ".join(dict.fromkeys(each.area for each in fine))
        yield f"{painted('ok', 'green')}    {_counted(len(fine), 'check')}: {areas} (`--all` shows each)"
    warned, failed = (sum(each.level == level for each in findings) for level in ("warn", "FAIL"))
    yield f"{len(fine)} ok, {_counted(warned, 'warning')}, {failed} failed"


def _line(finding: Finding) -> str:
    level = painted(f"{finding.level:<4}", STYLES[finding.level])
    return f"  {level}  {printable(finding.subject)}: {printable(finding.text)}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


async def _examine(*, live: bool, shown: bool) -> list[Finding]:
    from codebutler.domain.clock import SystemClock
    from codebutler.operations.doctor import examine

    findings = []
    _progress("Checking …", shown=shown)
    async for finding in examine(home(), environment(), SystemClock(), live=live):
        findings.append(finding)
        _progress(f"{_counted(len(findings), 'check')} done, last: {finding.area} …", shown=shown)
    _progress("", shown=shown)
    return findings


def _progress(text: str, *, shown: bool) -> None:
    """A line that the next one overwrites, to show progress."""
    if shown and is_interactive():
        sys.stderr.write(f"{CLEAR}{printable(text)}")
        sys.stderr.flush()

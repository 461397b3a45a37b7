"""``codebutler doctor``: one line for each check."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from codebutler.cli.output import is_interactive, print_json, printable, say
from codebutler.cli.surroundings import environment, home
from codebutler.protocol.findings import Finding

# Longest first where they are shown: the areas, and the levels.
AREA_CHARS = 10
CLEAR = "\r\x1b[K"


def run(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Also have each installed agent answer once; may cost a little.")
    ] = False,
) -> None:
    """Check tokens, scopes, channels, agents, walls, stores, disk and clock; exit code 1 if something fails."""
    findings = asyncio.run(_examine(live=live, shown=not as_json))
    counts = {level: sum(each.level == level for each in findings) for level in ("ok", "warn", "FAIL")}
    if as_json:
        print_json({"ok": not counts["FAIL"], "counts": counts, "findings": findings})
    else:
        say(f"{counts['ok']} ok, {counts['warn']} to look at, {counts['FAIL']} failed")
    if counts["FAIL"]:
        raise typer.Exit(1)


def line_of(finding: Finding) -> str:
    """A finding as it is printed."""
    return f"{finding.level:<4}  {finding.area:<{AREA_CHARS}}  {finding.subject}: {finding.text}"


async def _examine(*, live: bool, shown: bool) -> list[Finding]:
    from codebutler.clock import SystemClock
    from codebutler.doctor.run import examine

    findings = []
    _progress("looking …", shown=shown)
    async for finding in examine(home(), environment(), SystemClock(), live=live):
        findings.append(finding)
        if shown:
            _progress("", shown=shown)
            say(line_of(finding))
            sys.stdout.flush()
            _progress(f"{len(findings)} done, last: {finding.area} …", shown=shown)
    _progress("", shown=shown)
    return findings


def _progress(text: str, *, shown: bool) -> None:
    """A line that the next one overwrites, for a person who waits."""
    if shown and is_interactive():
        sys.stderr.write(f"{CLEAR}{printable(text)}")
        sys.stderr.flush()

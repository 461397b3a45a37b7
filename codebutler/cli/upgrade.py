"""``codebutler upgrade``: what an upgrade would change here, and the command that does it."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from codebutler.cli.context import environment, home
from codebutler.cli.doctor import report
from codebutler.cli.output import print_json, say

STEPS = (
    "Upgrade with the tool that installed it, such as `pipx upgrade codebutler` or `uv tool upgrade codebutler`.",
    "Then `codebutler upgrade --check` says what the new version will migrate,",
    "and `codebutler restart` starts it; running work resumes.",
)


def run(
    check: Annotated[
        bool, typer.Option("--check", help="Report what an upgrade would change, without changing anything.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the check as one JSON object.")] = False,
) -> None:
    """Show how to upgrade or, with --check, what an upgrade would change; exit code 1 if something must be fixed."""
    if not check:
        if as_json:
            raise typer.BadParameter("--json requires --check")
        for line in STEPS:
            say(line)
        return
    from msgspec.structs import asdict

    from codebutler.operations.upgrade import examine
    from codebutler.platform import service

    found = asyncio.run(examine(home(), environment(), service.run))
    if as_json:
        print_json({"ready": found.ready, **asdict(found)})
    else:
        sys.stdout.writelines(f"{line}\n" for line in report(found.findings, every=True))
    if not found.ready:
        raise typer.Exit(1)

"""``codebutler upgrade``: what an upgrade would change here, and the command that does it. ``codebutler restart``: the
supervisor restarts in place, and unfinished work resumes."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Annotated, Any

import typer

from codebutler.cli.context import asked, environment, home, talk
from codebutler.cli.doctor import report
from codebutler.cli.output import notice, print_json, say
from codebutler.domain.errors import CodeButlerError
from codebutler.protocol.control import RestartRequest, StatusReply, StatusRequest

STEPS = (
    "Upgrade with the tool that installed it, such as `pipx upgrade codebutler` or `uv tool upgrade codebutler`.",
    "Then `codebutler upgrade --check` says what the new version will migrate,",
    "and `codebutler restart` starts it; running work resumes.",
)
LOOK_S = 0.3
# Longer than running work has to finish, and a start takes.
PATIENCE_S = 120.0


def upgrade(
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


def restart() -> None:
    """Restart the running supervisor with the installed version; running work resumes."""
    began_s = time.monotonic()
    notice(talk(RestartRequest()).text)
    while (waited_s := time.monotonic() - began_s) < PATIENCE_S:
        time.sleep(LOOK_S)
        found = _supervisor()
        if found and found["uptime_s"] < waited_s:
            say(f"Restarted: pid {found['pid']}, version {found['version']}.")
            return
    raise CodeButlerError("the supervisor has not come back: see `codebutler logs`")


def _supervisor() -> dict[str, Any]:
    try:
        status: dict[str, Any] = asked(StatusRequest(), StatusReply).status["supervisor"]
    except CodeButlerError:
        return {}  # between the two
    return status

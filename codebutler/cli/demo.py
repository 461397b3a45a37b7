"""`codebutler demo`: everything at once, in the browser, without any account."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codebutler.cli.output import notice, say
from codebutler.config.schema import AgentName

if TYPE_CHECKING:
    from codebutler.operations.demo import Demo


def run(
    path: Annotated[
        Path | None, typer.Argument(help="Work on a copy of this repository; a sample if left out.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Listen here; 0 takes a free port.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    agent: Annotated[AgentName, typer.Option(help="Who answers.")] = "rehearsal",
    as_json: Annotated[bool, typer.Option("--json", help="Print where it runs as one JSON line.")] = False,
) -> None:
    """Try it: an embedded workspace, a supervisor and a sample repository, until Ctrl-C. Needs no account."""
    from codebutler.operations.demo import Wishes, remove_scratch, run_demo, scratch_place

    scratch = Path(tempfile.mkdtemp(prefix="codebutler-", dir=scratch_place()))
    if path is not None and path.is_dir():
        notice(f"Copying {path}: the demo works on the copy alone.")
    announce = _Announcement(as_json=as_json, browser=browser and not as_json)
    try:
        asyncio.run(run_demo(Wishes(path, port, agent), scratch, os.environ, announce))
    finally:
        remove_scratch(scratch)


class _Announcement:
    """Tells the person where to go."""

    def __init__(self, *, as_json: bool, browser: bool) -> None:
        self._as_json = as_json
        self._browser = browser

    def __call__(self, demo: Demo) -> None:
        self._tell(demo)
        sys.stdout.flush()

    def _tell(self, demo: Demo) -> None:
        if self._as_json:
            import msgspec

            typer.echo(msgspec.json.encode(demo).decode())
            return
        say(f"Open {demo.url}")
        say(f"You are talking to the agent of {demo.path}, a temporary copy. Ctrl-C ends the demo.")
        if demo.dashboard:
            say(f"Watch it work: {demo.dashboard} (one-time link)")
        say(
            f"Or talk at another terminal: CODEBUTLER_HOME={shlex.quote(demo.home)} {shlex.quote(sys.argv[0])} chat"
        )
        if not demo.sandboxed:
            notice(
                "bubblewrap does not work here, so the rehearsal agent runs without a sandbox (sandbox.mode none)"
            )
        if self._browser:
            webbrowser.open(demo.url)

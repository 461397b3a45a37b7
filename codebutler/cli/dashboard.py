"""`codebutler dashboard`: opens the dashboard."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from codebutler.cli.output import notice, print_json, say
from codebutler.cli.talk import talk
from codebutler.control.messages import ControlReply, DashboardReply, DashboardRequest


def run(
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print its address and a link as JSON.")] = False,
) -> None:
    """Open the dashboard in a browser. The link works once; the page then stays signed in."""
    found: list[DashboardReply] = []

    def take(reply: ControlReply) -> None:
        if isinstance(reply, DashboardReply):
            found.append(reply)

    talk(DashboardRequest(), take)
    for reply in found:
        if as_json:
            print_json({"url": reply.url, "link": reply.link})
            continue
        say(f"Dashboard: {reply.link}")
        notice("This is a one-time link, valid for an hour; run this again for another.")
        if browser:
            webbrowser.open(reply.link)

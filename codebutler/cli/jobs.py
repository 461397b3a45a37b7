"""`codebutler jobs`: what is scheduled, and the hand on it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from codebutler.cli.output import print_json, print_table, say
from codebutler.cli.talk import talk
from codebutler.control.messages import JobsReply, JobsRequest
from codebutler.text.markup import words

Action = Literal["list", "run", "pause", "resume"]


def run(
    action: Annotated[Action, typer.Argument(help="What to do; without it, the list.")] = "list",
    name: Annotated[str, typer.Argument(help="The job, as REPO/NAME where several have the name.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what is scheduled; run, pause or resume a job."""
    if action == "list":
        _list(as_json=as_json)
        return
    if not name:
        raise typer.BadParameter(f"say which: `codebutler jobs {action} NAME`", param_hint="NAME")
    done = talk(JobsRequest(action=action, name=name), lambda _: None)
    say(done.text)


def _list(*, as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    talk(JobsRequest(), lambda reply: rows.extend(reply.jobs) if isinstance(reply, JobsReply) else None)
    if as_json:
        print_json(rows)
    elif not rows:
        say("Nothing is scheduled: define jobs in .codebutler/jobs.yaml of a repository.")
    else:
        print_table(("JOB", "CRON", "NEXT", "LAST", "STATE"), [_cells(row) for row in rows])


def _cells(row: dict[str, Any]) -> tuple[str, str, str, str, str]:
    last = {True: " ok", False: " failed"}.get(row["last_ok"], "") if row["last"] else ""
    state = (
        "running" if row["running"] else (row["paused"] and f"paused: {words(row['paused'])}") or "waiting"
    )
    name = f"{row['repo']}/{row['name']}"
    return name, row["cron"], _local(row["next"]), f"{_local(row['last'])}{last}", state


def _local(moment: str | None) -> str:
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M}" if moment else "-"

"""`codebutler status`, `dashboard` and `jobs`: what the running supervisor does."""

from __future__ import annotations

import json
import webbrowser
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from codebutler.cli.context import request_reply, send_request
from codebutler.cli.output import notice, print_json, print_line, print_table
from codebutler.config.chats import SECTIONS
from codebutler.protocol.control import (
    DashboardReply,
    DashboardRequest,
    JobsReply,
    JobsRequest,
    StatusReply,
    StatusRequest,
)
from codebutler.text.markup import words
from codebutler.text.wording import load, today

Action = Literal["list", "run", "pause", "resume"]


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")] = False,
) -> None:
    """Show what the running supervisor is doing; exit code 1 if none is running."""
    status = request_reply(StatusRequest(), StatusReply).status
    typer.echo(json.dumps(status) if as_json else _status_text(status))


def _status_text(status: dict[str, Any]) -> str:
    supervisor = status["supervisor"]
    unsettled, unsent = status["journal"]["pending"], status["outbox"]["pending"]
    dashboard = status["dashboard"]["url"]
    lines = [
        f"supervisor  pid {supervisor['pid']}, up {_duration(supervisor['uptime_s'])}, {supervisor['version']}"
        + _trouble(supervisor),
        *(_chat_line(name, status[name]) for name in (each.key for each in SECTIONS) if name in status),
        f"waiting     {unsettled} in the inbox, {unsent} in the outbox" + _trouble(status["journal"]),
    ]
    lines += [f"journal     {mended}"] if (mended := status["journal"].get("mended")) else []
    lines += [f"dashboard   {dashboard} (`codebutler dashboard` opens it)"] if dashboard else []
    width = max((len(repo["name"]) for repo in status["repos"]), default=0)
    lines += [_repo_line(repo, width) for repo in status["repos"]]
    if not status["repos"]:
        lines.append("no repositories: add one with `codebutler add-repo`")
    return "\n".join(lines)


def _chat_line(name: str, chat: dict[str, Any]) -> str:
    figures = "".join(f", {kind} {chat[kind]}" for kind in ("connections", "reconnects") if kind in chat)
    return f"{name:<11} {chat['state']}{figures}{_trouble(chat)}"


def _trouble(part: dict[str, Any]) -> str:
    """Its problem; a supervisor of an earlier version does not report all of them."""
    return f": {part['trouble']}" if part.get("trouble") else ""


def _repo_line(repo: dict[str, Any], width: int) -> str:
    worker, turns, channel = repo["worker"], repo["turns"], repo.get("channel") or repo["channel_id"]
    memory = f", {worker['pss_bytes'] / 2**20:.0f} MB" if worker.get("pss_bytes") else ""
    programs = f", programs {worker['programs']}" if worker.get("programs") else ""
    untaken = f", {worker['undelivered']} undelivered" if worker.get("undelivered") else ""
    wrong = "; ".join(repo[kind] for kind in ("problem", "doubt") if repo.get(kind))
    note = f" ({wrong})" if wrong else ""
    return (
        f"{repo['name']:<{width}}  {channel}  {worker['state']}{memory}{programs}{untaken}; "
        f"worker reports {load(**turns)}{_today(repo)}{note}"
    )


def _today(repo: dict[str, Any]) -> str:
    """ "" from a supervisor of an earlier version."""
    if "today" not in repo:
        return ""
    return f", today {today(repo['today'], {one['unit']: one['limit'] for one in repo['budget']})}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def dashboard(
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print its address and a one-time link as JSON.")
    ] = False,
) -> None:
    """Open the dashboard in a browser. The link works once; the page then stays signed in."""
    reply = request_reply(DashboardRequest(), DashboardReply)
    if as_json:
        print_json({"url": reply.url, "link": reply.link})
        return
    print_line(f"Dashboard: {reply.link}")
    notice("This is a one-time link, valid for an hour; run this again for another.")
    if browser:
        webbrowser.open(reply.link)


def jobs(
    action: Annotated[Action, typer.Argument(help="What to do; defaults to listing the jobs.")] = "list",
    name: Annotated[str, typer.Argument(help="The job; REPO/NAME if several have that name.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what is scheduled; run, pause or resume a job."""
    if action == "list":
        _list_jobs(as_json=as_json)
        return
    if not name:
        raise typer.BadParameter(f"name the job: `codebutler jobs {action} NAME`", param_hint="NAME")
    print_line(send_request(JobsRequest(action=action, name=name)).text)


def _list_jobs(*, as_json: bool) -> None:
    rows = request_reply(JobsRequest(), JobsReply).jobs
    if as_json:
        print_json(rows)
    elif not rows:
        print_line(
            "No jobs are scheduled: define them in .codebutler/jobs.yaml. `!jobs` in a channel lists its timers."
        )
    else:
        print_table(("JOB", "CRON", "NEXT", "LAST", "STATE"), [_job_cells(row) for row in rows])


def _job_cells(row: dict[str, Any]) -> tuple[str, str, str, str, str]:
    last = {True: " ok", False: " failed"}.get(row["last_ok"], "") if row["last"] else ""
    state = (
        "running" if row["running"] else (row["paused"] and f"paused: {words(row['paused'])}") or "waiting"
    )
    name = f"{row['repo']}/{row['name']}"
    return name, row["cron"], _local_time(row["next"]), f"{_local_time(row['last'])}{last}", state


def _local_time(moment: str | None) -> str:
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M}" if moment else "-"

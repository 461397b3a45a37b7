"""`codebutler status`: what the running supervisor does."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from codebutler.cli.talk import talk
from codebutler.control.messages import ControlReply, StatusReply, StatusRequest
from codebutler.text.amounts import load, today


def run(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")] = False,
) -> None:
    """Show what the running supervisor does; exit code 1 when none runs."""
    answers: list[dict[str, Any]] = []

    def take(reply: ControlReply) -> None:
        if isinstance(reply, StatusReply):
            answers.append(reply.status)

    talk(StatusRequest(), take)
    for status in answers:
        typer.echo(json.dumps(status) if as_json else _text(status))


def _text(status: dict[str, Any]) -> str:
    supervisor = status["supervisor"]
    unsettled, unsent = status["journal"]["pending"], status["outbox"]["pending"]
    dashboard = status["dashboard"]["url"]
    lines = [
        f"supervisor  pid {supervisor['pid']}, up {_span(supervisor['uptime_s'])}, {supervisor['version']}"
        + _trouble(supervisor),
        *(_chat(name, status[name]) for name in ("slack", "telegram") if name in status),
        f"waiting     {unsettled} in the journal, {unsent} to be sent" + _trouble(status["journal"]),
    ]
    lines += [f"journal     {mended}"] if (mended := status["journal"].get("mended")) else []
    lines += [f"dashboard   {dashboard} (`codebutler dashboard` opens it)"] if dashboard else []
    width = max((len(repo["name"]) for repo in status["repos"]), default=0)
    lines += [_repo(repo, width) for repo in status["repos"]]
    if not status["repos"]:
        lines.append("no repositories: add one with `codebutler add-repo`")
    return "\n".join(lines)


def _chat(name: str, chat: dict[str, Any]) -> str:
    figures = "".join(f", {kind} {chat[kind]}" for kind in ("connections", "reconnects") if kind in chat)
    return f"{name:<11} {chat['state']}{figures}{_trouble(chat)}"


def _trouble(part: dict[str, Any]) -> str:
    """What is wrong there; a supervisor of an earlier version does not say it of everything."""
    return f": {part['trouble']}" if part.get("trouble") else ""


def _repo(repo: dict[str, Any], width: int) -> str:
    worker, turns = repo["worker"], repo["turns"]
    memory = f", {worker['pss_bytes'] / 2**20:.0f} MB" if worker.get("pss_bytes") else ""
    programs = f", programs {worker['programs']}" if worker.get("programs") else ""
    untaken = f", {worker['undelivered']} to be taken" if worker.get("undelivered") else ""
    wrong = "; ".join(repo[kind] for kind in ("problem", "doubt") if repo.get(kind))
    note = f" ({wrong})" if wrong else ""
    return (
        f"{repo['name']:<{width}}  {repo['channel_id']}  {worker['state']}{memory}{programs}{untaken}; "
        f"worker reports {load(**turns)}{_today(repo)}{note}"
    )


def _today(repo: dict[str, Any]) -> str:
    """ "" from a supervisor of an earlier version."""
    if "today" not in repo:
        return ""
    return f", today {today(repo['today'], {one['unit']: one['limit'] for one in repo['budget']})}"


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"

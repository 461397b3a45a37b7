"""``codebutler cluster``: how its machines are, and who belongs to it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from codebutler.cli import members
from codebutler.cli.chat import send
from codebutler.cli.command import App
from codebutler.cli.context import asked, home, known_repositories
from codebutler.cli.output import print_json, print_table, say
from codebutler.domain.errors import CodeButlerError, NotRunningError
from codebutler.protocol.control import StatusReply, StatusRequest
from codebutler.supervisor.supervisor import is_held
from codebutler.text.amounts import load

app = App("Create a cluster of several machines, add and remove hosts, and show their state.")


@app.callback()
def _group() -> None:
    """Create a cluster of several machines, add and remove hosts, and show their state."""


app.command("create")(members.create)
app.command("copy")(members.copy)
app.command("invite")(members.invite)
app.command("remove")(members.remove)


@app.command("status")
def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")] = False,
) -> None:
    """Show the gateways, the hosts and their repositories, as the gateway of this home sees them."""
    try:
        told = asked(StatusRequest(), StatusReply).status
    except NotRunningError:
        if not is_held(home().lock):
            raise
        raise CodeButlerError("this gateway is on standby: run this at the active one") from None
    if "cluster" not in told:
        raise CodeButlerError(
            "no gateway is running here: run this on the machine where `codebutler gateway` runs"
        )
    shown = {**told["cluster"], "repos": told["repos"]}
    if as_json:
        print_json(shown)
        return
    say(f"epoch {shown['epoch']}, {told['outbox']['pending']} in the outbox")
    print_table(("GATEWAY", "VERSION", "ROLE", "SEEN"), [_gateway(each) for each in shown["gateways"]])
    print_table(
        ("HOST", "VERSION", "STATE", "SEEN", "PENDING", "OUTBOX"), [_host(each) for each in shown["hosts"]]
    )
    print_table(("REPOSITORY", "HOST", "STATE", "RUNS", "PENDING"), [_repo(each) for each in shown["repos"]])


@app.command("move")
def move(
    repo: Annotated[str, typer.Argument(help="A repository's name.", autocompletion=known_repositories)],
    host: Annotated[
        str, typer.Argument(help="The host to move it to; the repository must be registered there.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Do not wait for running agents.")] = False,
) -> None:
    """Move a repository to another host: sends `!move HOST` in its channel, and prints the answer."""
    send(repo, f"!move {host}{' force' if force else ''}", wait=True)


def _gateway(row: dict[str, Any]) -> tuple[str, ...]:
    return row["machine"], row["version"], "active" if row["leads"] else "standby", _moment(row["seen"])


def _host(row: dict[str, Any]) -> tuple[str, ...]:
    state = "awake" if row["awake"] else f"away since {_moment(row['since'])}"
    pending = "?" if row["pending"] is None else str(row["pending"])
    return row["name"], row["version"] or "?", state, _moment(row["seen"]), pending, str(row["outbox"])


def _repo(row: dict[str, Any]) -> tuple[str, ...]:
    worker = row["worker"]
    return row["name"], row["host"], worker["state"], load(**row["turns"]), str(worker["undelivered"])


def _moment(moment: str | None) -> str:
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M:%S}" if moment else "-"

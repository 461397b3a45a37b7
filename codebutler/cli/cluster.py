"""``codebutler cluster``: how its machines are, and what its NATS servers need to know."""

from __future__ import annotations

import os
import secrets
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from codebutler.cli.command import App
from codebutler.cli.context import asked, home
from codebutler.cli.output import notice, print_json, print_table, say
from codebutler.cluster.server import server_config
from codebutler.cluster.subjects import GATEWAY, HOST_NAME
from codebutler.control.messages import StatusReply, StatusRequest
from codebutler.domain.errors import CodeButlerError, NotRunningError
from codebutler.supervisor.supervisor import is_held
from codebutler.text.amounts import load

app = App("Show a cluster, and configure its NATS servers.")


@app.callback()
def _group() -> None:
    """Show a cluster, and configure its NATS servers."""


@app.command("nats-config")
def nats_config(
    hosts: Annotated[list[str], typer.Argument(help="The hosts' names.")],
    directory: Annotated[str, typer.Option(help="Where the server keeps its streams.")] = "/var/lib/nats",
    output: Annotated[Path | None, typer.Option(help="A new file for it, for your eyes only.")] = None,
    listen: Annotated[str, typer.Option(help="The address and the port to listen on.")] = "127.0.0.1:4222",
) -> None:
    """Print or write a configuration for nats-server, with new passwords and what each host may do there."""
    for name in hosts:
        if not HOST_NAME.fullmatch(name) or name == GATEWAY:
            raise typer.BadParameter(f"{name} cannot be a host's name: use small letters, digits and '-'")
    passwords = {name: secrets.token_urlsafe(24) for name in (GATEWAY, *hosts)}
    config = server_config(passwords, listen=listen, directory=directory)
    if output is None:
        typer.echo(config)
    else:
        _write(output, config)
    notice(
        "Put each password into cluster.json of its machine. TLS is needed as soon as the server listens on anything "
        "but loopback."
    )


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
        raise CodeButlerError("this gateway stands by: ask the one that leads") from None
    if "cluster" not in told:
        raise CodeButlerError("what runs here is no gateway: ask where `codebutler gateway` runs")
    shown = {**told["cluster"], "repos": told["repos"]}
    if as_json:
        print_json(shown)
        return
    say(f"epoch {shown['epoch']}, {told['outbox']['pending']} to be sent")
    print_table(("GATEWAY", "VERSION", "ROLE", "SEEN"), [_gateway(each) for each in shown["gateways"]])
    print_table(
        ("HOST", "VERSION", "STATE", "SEEN", "PENDING", "OUTBOX"), [_host(each) for each in shown["hosts"]]
    )
    print_table(("REPOSITORY", "HOST", "STATE", "RUNS", "PENDING"), [_repo(each) for each in shown["repos"]])


def _gateway(row: dict[str, Any]) -> tuple[str, ...]:
    return row["machine"], row["version"], "leads" if row["leads"] else "stands by", _moment(row["seen"])


def _host(row: dict[str, Any]) -> tuple[str, ...]:
    state = "awake" if row["awake"] else f"away since {_moment(row['since'])}"
    pending = "?" if row["pending"] is None else str(row["pending"])
    return row["name"], row["version"] or "?", state, _moment(row["seen"]), pending, str(row["outbox"])


def _repo(row: dict[str, Any]) -> tuple[str, ...]:
    worker = row["worker"]
    return row["name"], row["host"], worker["state"], load(**row["turns"]), str(worker["undelivered"])


def _moment(moment: str | None) -> str:
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M:%S}" if moment else "-"


def _write(path: Path, text: str) -> None:
    """Raises CodeButlerError if it is there already: its passwords are in use."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
    except OSError as error:
        raise CodeButlerError(f"cannot write {path}: {error.strerror}") from None

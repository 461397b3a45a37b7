"""``codebutler cluster``: who belongs to it, and how its machines are. ``codebutler host``: run one of them; and
``codebutler host join``: make this machine one."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec.structs import replace

from codebutler.cli.chat import send
from codebutler.cli.command import App
from codebutler.cli.context import environment, home, known_repositories, request_reply
from codebutler.cli.output import is_interactive, notice, print_json, print_line, print_table, warn
from codebutler.cli.serve import need_cluster
from codebutler.cluster.membership import (
    GATEWAY,
    HOST_NAME,
    MEMBERSHIP_FILE,
    is_host,
    membership_from_token,
    read_gateway_membership,
    read_membership,
    token_of,
    write_membership,
)
from codebutler.cluster.server import NatsNode
from codebutler.config.paths import Home
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import CodeButlerError, ConfigError, NotRunningError
from codebutler.platform.http import is_loopback
from codebutler.protocol.control import StatusReply, StatusRequest
from codebutler.supervisor.supervisor import is_held
from codebutler.text.wording import load

if TYPE_CHECKING:
    from codebutler.cluster.membership import ClusterMembership
    from codebutler.cluster.messages import HostRemoved


app = App("Create a cluster of several machines, add and remove hosts, and show their state.")


HOST = typer.Argument(help="The host's name: lower-case letters, digits and '-'.")
LOOPBACK = "127.0.0.1"
SERVER = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(?::([0-9]{1,5}))?")
RUN = "Run this machine's agents for a gateway until SIGTERM or SIGINT; a second signal ends it immediately."
host_app = App(RUN, invoke_without_command=True)


@app.command("create")
def create(
    server: Annotated[
        list[str] | None,
        typer.Option(
            help="HOST[:PORT] at which other machines reach a NATS server; repeat for 3 or 5 servers."
        ),
    ] = None,
    directory: Annotated[str, typer.Option(help="Where a server keeps its data.")] = "data",
    client_ca: Annotated[
        Path | None,
        typer.Option(
            help="Also require client certificates signed by this authority (PEM).",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Create a cluster: its keys, this gateway's credential, and the configuration of its NATS servers."""
    need_cluster()
    from codebutler.cluster.authority import AUTHORITY_FILE, ClusterAuthority
    from codebutler.cluster.server import NatsFiles

    nodes = tuple(map(_node, server or [LOOPBACK]))
    if len(set(nodes)) != len(nodes) or len(nodes) not in (1, 3, 5):
        raise typer.BadParameter("--server: name one server, or 3 or 5 different ones")
    home_dir = home().ensure()
    for each in (MEMBERSHIP_FILE, AUTHORITY_FILE):
        if (home_dir.root / each).exists():
            raise ConfigError(f"{home_dir.root / each} already exists: this home belongs to a cluster")
    client_pem = client_ca.read_bytes() if client_ca is not None else b""
    encrypted = bool(client_pem) or not all(is_loopback(each.host) for each in nodes)
    files = NatsFiles(home_dir.root / "nats", nodes, encrypted=encrypted)
    urls = tuple(each.url(encrypted=encrypted) for each in nodes)
    authority = ClusterAuthority.new(urls, files.ca.decode())
    now_s = int(time.time())
    folders = files.write(authority.trust(now_s), directory, client_pem)
    with home_dir.open() as opened:
        opened.write(AUTHORITY_FILE, msgspec.json.format(msgspec.json.encode(authority), indent=2))
    write_membership(home_dir, authority.gateway_membership(now_s))
    for node, folder in zip(nodes, folders, strict=True):
        note = "" if is_loopback(node.host) else f", on {node.host} (copy the folder there)"
        print_line(f"cd {folder} && nats-server -c nats.conf{note}")
    notice(
        "Next: start the servers like this, then `codebutler cluster invite HOST` for each machine. "
        f"Keep {AUTHORITY_FILE} here."
    )
    if client_pem:
        notice(
            f"Set clientCertificate and clientKey in {home_dir.root / MEMBERSHIP_FILE}: this gateway needs them too."
        )


@app.command("copy")
def copy(old: Annotated[Path, typer.Argument(help="The gateway's previous cluster.json.")]) -> None:
    """Copy our data from other NATS servers to this cluster's new ones, such as from one server to three."""
    need_cluster()
    from codebutler.cluster.streams import copy_streams

    before, now = read_gateway_membership(old), read_membership(home(), gateway=True)
    found = asyncio.run(copy_streams(before, now, SystemClock()))
    count = sum(found.values())
    streams = "one stream" if len(found) == 1 else f"{len(found)} streams"
    print_line(f"Copied {streams} with {count} {'message' if count == 1 else 'messages'}.")
    notice("Next: stop the old servers for good, invite each host again, and start the gateway.")


@app.command("invite")
def invite(
    host: Annotated[str, HOST],
    replace: Annotated[bool, typer.Option("--replace", help="Replace its current credential.")] = False,
) -> None:
    """Let a machine join: print a one-line token for `codebutler host join`. The token is a secret, shown once."""
    need_cluster()
    _check_host_name(host)
    membership = asyncio.run(_invite(home(), host, replace=replace))
    print_line(token_of(membership))
    notice(
        f"Run `codebutler host join` on {host}, and paste this line there. It is not shown again. Whoever has it can "
        f"act as {host} until you run `codebutler cluster remove {host}`."
    )


async def _invite(home_dir: Home, host: str, *, replace: bool) -> ClusterMembership:
    from codebutler.cluster.authority import read_authority
    from codebutler.cluster.connection import HostAccounts

    authority, gateway = read_authority(home_dir), read_membership(home_dir, gateway=True)
    async with HostAccounts.opened(authority, gateway, SystemClock()) as accounts:
        if host in await accounts.hosts() and not replace:
            raise CodeButlerError(
                f"{host} already belongs to the cluster: add --replace to replace its credential, "
                "or choose another name"
            )
        await accounts.remove(host)
        return await accounts.invite(host)


@app.command("remove")
def remove(host: Annotated[str, HOST]) -> None:
    """Remove a machine: close its connection, refuse its credential, and drop the messages that wait for it."""
    need_cluster()
    _check_host_name(host)
    removed, is_announced = asyncio.run(_remove_host(home(), host))
    print_line(f"Removed {host}: it is disconnected, and its credential and its token are refused.")
    for repo, count in sorted(removed.waited.items()):
        print_line(f"{repo}: dropped {count} waiting {'message' if count == 1 else 'messages'}.")
    if removed.calls:
        print_line(f"Dropped {removed.calls} of its own messages, which had not been posted yet.")
    if not is_announced:
        warn("no gateway answered, so the channels of its repositories were not notified")
    notice("Its repositories stay registered here: move them, or run `codebutler remove-repo NAME`.")


async def _remove_host(home_dir: Home, host: str) -> tuple[HostRemoved, bool]:
    """The lines about what was dropped, and whether the channels were notified."""
    from codebutler.cluster.authority import read_authority
    from codebutler.cluster.bus import Bus
    from codebutler.cluster.connection import PATIENCE_S, HostAccounts
    from codebutler.cluster.moving import announce_removal, purge_host

    membership, clock = read_membership(home_dir, gateway=True), SystemClock()
    async with HostAccounts.opened(read_authority(home_dir), membership, clock) as accounts:
        if not await accounts.remove(host):
            names = ", ".join(await accounts.hosts()) or "none"
            raise CodeButlerError(f"no host named {host} belongs to the cluster (hosts: {names})")
    async with Bus.connected(membership, clock, PATIENCE_S) as bus:
        removed = await purge_host(bus, host)
        return removed, await announce_removal(bus, removed)


def _check_host_name(host: str) -> None:
    if not HOST_NAME.fullmatch(host) or host == GATEWAY:
        raise typer.BadParameter(f"{host} is not a valid host name: use lower-case letters, digits and '-'")


def _node(text: str) -> NatsNode:
    found = SERVER.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"--server: {text} is not HOST or HOST:PORT")
    return NatsNode(found[1], int(found[2])) if found[2] else NatsNode(found[1])


@app.command("status")
def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")] = False,
) -> None:
    """Show the gateways, the hosts and their repositories, as the gateway of this home sees them."""
    try:
        reply = request_reply(StatusRequest(), StatusReply).status
    except NotRunningError:
        if not is_held(home().lock):
            raise
        raise CodeButlerError("this gateway is on standby: run this at the active one") from None
    if "cluster" not in reply:
        raise CodeButlerError(
            "no gateway is running here: run this on the machine where `codebutler gateway` runs"
        )
    cluster = {**reply["cluster"], "repos": reply["repos"]}
    if as_json:
        print_json(cluster)
        return
    print_line(f"epoch {cluster['epoch']}, {reply['outbox']['pending']} in the outbox")
    print_table(("GATEWAY", "VERSION", "ROLE", "SEEN"), [_gateway(each) for each in cluster["gateways"]])
    print_table(
        ("HOST", "VERSION", "STATE", "SEEN", "PENDING", "OUTBOX"), [_host(each) for each in cluster["hosts"]]
    )
    print_table(
        ("REPOSITORY", "HOST", "STATE", "RUNS", "PENDING"), [_repo(each) for each in cluster["repos"]]
    )


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
    return row["machine"], row["version"], "active" if row["leads"] else "standby", _local_time(row["seen"])


def _host(row: dict[str, Any]) -> tuple[str, ...]:
    state = "awake" if row["awake"] else f"away since {_local_time(row['since'])}"
    pending = "?" if row["pending"] is None else str(row["pending"])
    return row["name"], row["version"] or "?", state, _local_time(row["seen"]), pending, str(row["outbox"])


def _repo(row: dict[str, Any]) -> tuple[str, ...]:
    worker = row["worker"]
    return row["name"], row["host"], worker["state"], load(**row["turns"]), str(worker["undelivered"])


def _local_time(moment: str | None) -> str:
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M:%S}" if moment else "-"


@host_app.callback(help=RUN)
def host(ctx: typer.Context) -> None:
    """Without a command: run."""
    if ctx.invoked_subcommand is not None:
        return
    need_cluster()
    from codebutler.parent.host import host as work

    asyncio.run(work(home(), dict(environment())))


@host_app.command()
def join(
    token: Annotated[
        str, typer.Argument(help="The token. If omitted (safer), it is prompted for, or read from stdin.")
    ] = "",
    certificate: Annotated[
        Path | None, typer.Option(help="This machine's certificate (PEM), if the servers require one.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The key of that certificate (PEM).")] = None,
) -> None:
    """Join a cluster with the token that `codebutler cluster invite` printed at the gateway."""
    need_cluster()
    home_dir = home()
    if (home_dir.root / MEMBERSHIP_FILE).exists() and not is_host(home_dir):
        raise ConfigError(
            f"{home_dir.root} is a gateway's home: a host needs another home (set CODEBUTLER_HOME)"
        )
    membership = membership_from_token(token or _read_token())
    membership = replace(
        membership,
        client_certificate=str(certificate.resolve()) if certificate else "",
        client_key=str(key.resolve()) if key else "",
    )
    asyncio.run(_check_membership(home_dir, membership))
    write_membership(home_dir, membership)
    print_line(
        f"This machine is now the host {membership.name}, connected to {', '.join(membership.servers)}."
    )
    notice(
        f"Next: `codebutler add-repo PATH` here for each repository, `codebutler add-repo {membership.name}:NAME` at "
        "the gateway, then `codebutler host` here."
    )


async def _check_membership(home_dir: Home, membership: ClusterMembership) -> None:
    """Raises ConfigError and CodeButlerError if that cannot be used; then nothing has changed."""
    from codebutler.cluster.bus import Bus
    from codebutler.cluster.connection import PATIENCE_S

    home_dir.ensure()
    async with Bus.connected(membership, SystemClock(), PATIENCE_S):
        return


def _read_token() -> str:
    if not is_interactive():
        return sys.stdin.read()
    from codebutler.cli.prompts import ask_secret

    return ask_secret("Token")

"""``codebutler host``: run a machine of a cluster, and ``codebutler host join``: make this machine one."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from codebutler.cli.command import App
from codebutler.cli.context import environment, home
from codebutler.cli.output import is_interactive, notice, say
from codebutler.cli.serve import need_cluster
from codebutler.cluster.membership import NAME, is_host, membership_in, write_membership
from codebutler.config.paths import Home
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import ConfigError

if TYPE_CHECKING:
    from codebutler.cluster.membership import ClusterMembership

RUN = "Run this machine's agents for a gateway until SIGTERM or SIGINT; a second signal ends it immediately."
app = App(RUN, invoke_without_command=True)


@app.callback(help=RUN)
def host(ctx: typer.Context) -> None:
    """Without a command: run."""
    if ctx.invoked_subcommand is not None:
        return
    need_cluster()
    from codebutler.parent.host import host as work

    asyncio.run(work(home(), dict(environment())))


@app.command()
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
    where = home()
    if (where.root / NAME).exists() and not is_host(where):
        raise ConfigError(
            f"{where.root} is a gateway's home: a host needs another home (set CODEBUTLER_HOME)"
        )
    membership = membership_in(token or _read_token())
    membership = replace(
        membership,
        client_certificate=str(certificate.resolve()) if certificate else "",
        client_key=str(key.resolve()) if key else "",
    )
    asyncio.run(_check(where, membership))
    write_membership(where, membership)
    say(f"This machine is now the host {membership.name}, connected to {', '.join(membership.servers)}.")
    notice(
        f"Next: `codebutler add-repo PATH` here for each repository, `codebutler add-repo {membership.name}:NAME` at "
        "the gateway, then `codebutler host` here."
    )


async def _check(where: Home, membership: ClusterMembership) -> None:
    """Raises ConfigError and CodeButlerError if that cannot be used; then nothing has changed."""
    from codebutler.cluster.accounts import PATIENCE_S
    from codebutler.cluster.bus import Bus

    where.ensure()
    async with Bus.connected(membership, SystemClock(), PATIENCE_S):
        return


def _read_token() -> str:
    if not is_interactive():
        return sys.stdin.read()
    from codebutler.cli.prompts import PromptTerminal

    with PromptTerminal() as terminal:
        return asyncio.run(terminal.ask_secret("Token"))

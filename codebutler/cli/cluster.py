"""``codebutler cluster``: what a cluster's NATS servers need to know."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from codebutler.cli.command import App
from codebutler.cli.output import notice
from codebutler.cluster.server import server_config
from codebutler.cluster.subjects import GATEWAY, HOST_NAME
from codebutler.domain.errors import CodeButlerError

app = App("Configure a cluster's NATS servers.")


@app.callback()
def _group() -> None:
    """Configure a cluster's NATS servers."""


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


def _write(path: Path, text: str) -> None:
    """Raises CodeButlerError if it is there already: its passwords are in use."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
    except OSError as error:
        raise CodeButlerError(f"cannot write {path}: {error.strerror}") from None

"""`codebutler stop`: end what runs in a repository."""

from __future__ import annotations

from typing import Annotated

import typer

from codebutler.cli.talk import talk
from codebutler.cli.which import known_repositories
from codebutler.control.messages import StopRequest


def run(
    repo: Annotated[
        str, typer.Argument(help="A repository's name, or `all`.", autocompletion=known_repositories)
    ],
) -> None:
    """Stop running and cancel queued work of a repository; the supervisor goes on."""
    done = talk(StopRequest(repo=repo), lambda _: None)
    typer.echo(done.text)

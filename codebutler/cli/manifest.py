"""`codebutler manifest`: what a person creates in a chat before `codebutler setup`."""

from __future__ import annotations

from typing import Annotated

import typer

from codebutler.chat.platforms import PLATFORMS, platform


def manifest(
    chat: Annotated[str, typer.Argument(help=f"The chat: {' or '.join(PLATFORMS)}.")] = next(iter(PLATFORMS)),
    link: Annotated[bool, typer.Option("--link", help="Print a link that starts the setup.")] = False,
) -> None:
    """Print what to create in a chat before `codebutler setup`: an app's manifest, or the steps that create a bot."""
    name = next((each for each in PLATFORMS if each.casefold() == chat.casefold()), None)
    if name is None:
        raise typer.BadParameter(f"unknown chat {chat}: choose {' or '.join(PLATFORMS)}")
    typer.echo(platform(name).manifest(link=link))

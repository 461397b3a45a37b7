"""``codebutler manifest``."""

from __future__ import annotations

from typing import Annotated

import typer

from codebutler.cli.output import print_json, say


def run(
    link: Annotated[bool, typer.Option("--link", help="Print the link that creates the app.")] = False,
) -> None:
    """Print the Slack app manifest, or the link that creates the app from it."""
    from codebutler.chat.slack.app import creation_link, manifest

    if link:
        say(creation_link())
    else:
        print_json(manifest())

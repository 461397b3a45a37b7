"""`codebutler workspace`: the embedded workspace alone, for trying out any Slack client."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from codebutler.domain.errors import CodeButlerError


def run(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Listen here; 0 takes a free port.")] = 0,
    channel: Annotated[list[str] | None, typer.Option(help="A channel to have; may be repeated.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="A person besides you; may be repeated.")] = None,
    bot: Annotated[list[str] | None, typer.Option(help="A bot of another app; may be repeated.")] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="Your app's manifest: its slash commands and shortcuts.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print addresses and tokens as one JSON line.")
    ] = False,
) -> None:
    """Run the embedded Slack-compatible workspace until SIGTERM or SIGINT; it keeps everything in memory."""
    wishes = Wishes(
        port=port,
        channels=tuple(channel or ["general"]),
        users=tuple(user or []),
        bots=tuple(bot or []),
        manifest=manifest,
    )
    asyncio.run(_serve(wishes, as_json=as_json))


@dataclass(frozen=True)
class Wishes:
    """What the workspace shall have; port 0 is any free one."""

    port: int
    channels: tuple[str, ...]
    users: tuple[str, ...]
    bots: tuple[str, ...]
    manifest: Path | None


async def _serve(wishes: Wishes, *, as_json: bool) -> None:
    from codebutler.platform.signals import Stopping
    from codebutler.workspace.offers import offers_of
    from codebutler.workspace.server import Options, WorkspaceServer
    from codebutler.workspace.subscriptions import Subscriptions, subscriptions_of

    stopping = Stopping()
    options = Options(
        channels=wishes.channels,
        port=wishes.port,
        guests=wishes.users,
        guest_bots=wishes.bots,
        subscriptions=Subscriptions(further=True),
    )
    if wishes.manifest is not None:
        manifest = _text(wishes.manifest)
        options = msgspec.structs.replace(
            options, offers=offers_of(manifest), subscriptions=subscriptions_of(manifest)
        )
    async with WorkspaceServer(options) as workspace:
        told = workspace.announcement()
        users = {} if as_json else told.pop("users", {})
        lines = [json.dumps(told)] if as_json else [f"{name:<11} {value}" for name, value in told.items()]
        lines += [f"{name:<11} {user['id']} {user['token']}" for name, user in users.items()]
        typer.echo("\n".join(lines))
        sys.stdout.flush()
        with stopping.on_signals():
            await stopping.asked.wait()


def _text(manifest: Path) -> str:
    try:
        return manifest.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text"
        raise CodeButlerError(f"cannot read {manifest}: {why}") from None

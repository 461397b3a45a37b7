"""`codebutler workspace`: the embedded workspace alone, for trying out any Slack client."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated

import typer


def run(
    port: Annotated[int, typer.Option(help="Listen here; 0 takes a free port.")] = 0,
    channel: Annotated[list[str] | None, typer.Option(help="A channel to have; may be repeated.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print addresses and tokens as one JSON line.")
    ] = False,
) -> None:
    """Run the embedded Slack-compatible workspace until SIGTERM or SIGINT; it keeps everything in memory."""
    asyncio.run(_serve(port, tuple(channel or ["general"]), as_json=as_json))


async def _serve(port: int, channels: tuple[str, ...], *, as_json: bool) -> None:
    from codebutler.process.stopping import Stopping
    from codebutler.workspace.server import Options, WorkspaceServer

    stopping = Stopping()
    async with WorkspaceServer(Options(channels=channels, port=port)) as workspace:
        told = workspace.announcement()
        lines = [json.dumps(told)] if as_json else [f"{name:<11} {value}" for name, value in told.items()]
        typer.echo("\n".join(lines))
        sys.stdout.flush()
        with stopping.on_signals():
            await stopping.asked.wait()

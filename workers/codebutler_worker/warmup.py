"""A dress rehearsal for the fork server: one worker's start, one message and its end, in a directory of its own.

What a first run builds (dialect, compiled statements, codecs) is then built once and shared by every worker, not
once in each: about 2 MB less per worker. Nothing of it is kept but that.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from pathlib import Path

from codebutler.clock import Clock, SystemClock
from codebutler.config.paths import Home
from codebutler.config.schema import Config, RepoSettings
from codebutler.errors import AgentUnavailableError
from codebutler.model import Command, MessagePosted
from codebutler.protocol.channel import Channel
from codebutler.protocol.codec import to_parent_codec
from codebutler.protocol.messages import Configure, Deliver, Hello, Ready, Send, Sent, Shutdown, ToParent
from codebutler_worker.agents.backend import AgentBackend
from codebutler_worker.bootstrap import serve

CHANNEL = "C000"
LIMIT_S = 10.0


class NoAgents:
    """Nobody is asked for."""

    async def get(self, name: str) -> AgentBackend:
        raise AgentUnavailableError(f"{name} does not rehearse")

    async def close(self) -> None:
        return


def warm_up() -> None:
    """Go through it. Where that fails (say, no room in the temporary directory) everything works all the same."""
    try:
        with tempfile.TemporaryDirectory(prefix="codebutler-warm-up-") as directory:
            asyncio.run(asyncio.wait_for(_rehearse(Path(directory)), LIMIT_S))
    except Exception:  # noqa: BLE001 - a failed rehearsal costs memory; raising here would cost every worker
        return


async def _rehearse(directory: Path) -> None:
    ours, theirs = socket.socketpair()
    serving = asyncio.create_task(
        serve(theirs, SystemClock(), _no_agents, Home(directory / "home")), name="warm-up"
    )
    channel: Channel[ToParent] = await Channel.over(ours, to_parent_codec())
    try:
        async for message in channel.messages():
            _answer(channel, message, directory)
        await serving
    finally:
        channel.close()
        await channel.wait_closed()


def _answer(channel: Channel[ToParent], message: ToParent, directory: Path) -> None:
    if isinstance(message, Hello):
        settings = RepoSettings(name="", path=str(directory), channel_id=CHANNEL, config=Config())
        channel.send(Configure(settings=settings))
    elif isinstance(message, Ready):
        event = MessagePosted(channel=CHANNEL, ts="1.1", user="U000", text="!ping")
        channel.send(Deliver(seq=1, event=event, request=Command(name="ping")))
    elif isinstance(message, Send):
        channel.send(Sent(op_id=message.op_id, ts="1.2"))
        channel.send(Shutdown(reason="sleep", grace_s=LIMIT_S / 2))


def _no_agents(_settings: RepoSettings, _clock: Clock) -> NoAgents:
    return NoAgents()

"""A dress rehearsal for the fork server: one worker's start, a command, a turn and its end, in a directory of its
own.

What a first run builds (dialect, compiled statements, codecs) is then built once and shared by every worker, not
once in each: 2 MB less for a worker that waits, 5 MB less for one that has worked. Nothing of it is kept but that.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from codebutler.config.paths import Home
from codebutler.config.schema import AgentSection, Config, RepoSettings
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import SandboxUnavailableError
from codebutler.domain.model import Command, MessagePosted, Prompt, Request
from codebutler.protocol.messages import (
    Configure,
    Deliver,
    Hello,
    Overview,
    Ready,
    Send,
    Sent,
    Shutdown,
    ToParent,
    TurnEnded,
)
from codebutler.protocol.pipe import MessagePipe, to_parent_codec
from codebutler_worker.agents.backend import (
    AgentBackend,
    AgentEvent,
    Answer,
    Finished,
    Started,
    Text,
    TurnRequest,
)
from codebutler_worker.agents.survey import Survey
from codebutler_worker.commands.table import load
from codebutler_worker.tree.tree import Tree
from codebutler_worker.worker.bootstrap import serve

CHANNEL = "C000"
LIMIT_S = 10.0
TOLD, ENDED = "overview", "end"
REQUESTS: tuple[Request, ...] = (Command(name="ping"), Prompt(text="Are you there?"))
# In memory, where there is such a place: nothing of it need outlive a power cut.
STAGE = Path("/dev/shm")  # noqa: S108 - a directory with a random name is made in it


class HurriedClock(SystemClock):
    """Nobody is kept waiting."""

    async def sleep(self, seconds: float) -> None:
        """Ten milliseconds at most, whatever is asked for."""
        await super().sleep(min(seconds, 0.01))


class _OneLineBackend:
    """Says one line; asks nothing, and has ended before anybody could stop it."""

    name = "claude"

    async def start(self, turn: TurnRequest) -> AsyncIterator[AgentEvent]:
        yield Started(turn.turn_id)
        yield Text("**Here.**")
        yield Finished(ok=True, text="**Here.**", reason="done")

    async def answer(self, turn_id: str, request_id: str, answer: Answer) -> bool:  # noqa: ARG002
        return False

    async def steer(self, turn_id: str, text: str) -> bool:  # noqa: ARG002
        return False

    async def stop(self, turn_id: str) -> bool | None:  # noqa: ARG002
        return None

    async def close(self) -> None:
        return


class _OneLineAgents:
    """The same agent by every name; no worktree, no working tree."""

    async def get(self, name: str) -> AgentBackend:  # noqa: ARG002
        return _OneLineBackend()

    async def workdir(self, conversation: str, *, task: str | None = None) -> Path:  # noqa: ARG002
        return Path()

    async def tidy(self, conversation: str) -> str:  # noqa: ARG002
        return ""

    async def tree(self, workdir: Path) -> Tree:  # noqa: ARG002
        raise SandboxUnavailableError("there is no working tree to rehearse with")

    async def survey(self) -> tuple[Survey, ...]:
        return ()

    def release(self, conversation: str) -> None:  # noqa: ARG002
        return

    async def close(self) -> None:
        return


def warm_up(stage: Path = STAGE) -> bool:
    """Go through it; whether it went well. Where not (say, no room in the temporary directory) everything works
    all the same."""
    try:
        place = stage if os.access(stage, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="codebutler-warm-up-", dir=place) as directory:
            return asyncio.run(asyncio.wait_for(_rehearse(Path(directory)), LIMIT_S))
    except Exception:  # noqa: BLE001 - a failed rehearsal costs memory; raising here would cost every worker
        return False


async def _rehearse(directory: Path) -> bool:
    load()
    ours, theirs = socket.socketpair()
    serving = asyncio.create_task(
        serve(theirs, HurriedClock(), lambda *_: _OneLineAgents(), Home(directory / "home")), name="warm-up"
    )
    channel: MessagePipe[ToParent] = await MessagePipe.over(ours, to_parent_codec())
    told: list[str] = []
    try:
        async for message in channel.messages():
            _answer(channel, message, directory, told)
        return await serving == 0 and told.count("done") == len(REQUESTS)
    finally:
        channel.close()
        await channel.wait_closed()


def _answer(channel: MessagePipe[ToParent], message: ToParent, directory: Path, told: list[str]) -> None:
    """``told``: the outcome of each request, that the overview was told, and that it was asked to end."""
    if isinstance(message, Hello):
        config = Config(agent=AgentSection(debounce_seconds=0))
        settings = RepoSettings(name="", path=str(directory), channel_id=CHANNEL, config=config)
        channel.send(Configure(settings=settings))
    elif isinstance(message, Ready):
        for seq, request in enumerate(REQUESTS, start=1):
            ts = f"1.{seq}"
            event = MessagePosted(
                channel=CHANNEL,
                ts=ts,
                sent_at=1.0,
                order=ts,
                is_direct=False,
                user="U000",
                text="Are you there?",
            )
            channel.send(Deliver(seq=seq, event=event, request=request))
    elif isinstance(message, Send):
        channel.send(Sent(op_id=message.op_id, ts="2.1"))
    elif isinstance(message, TurnEnded):
        channel.send(Sent(op_id=message.op_id, ts=""))
        told.append(message.outcome)
    elif isinstance(message, Overview):
        told.append(TOLD)
    if TOLD in told and len(told) - told.count(TOLD) == len(REQUESTS):
        told.append(ENDED)
        channel.send(Shutdown(reason="sleep", grace_s=LIMIT_S / 2))

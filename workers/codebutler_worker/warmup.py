"""A rehearsal in the fork server: a worker's start, a command, a turn and its end, in a temporary directory.

It builds once what a first run builds (dialect, compiled statements, codecs), and every worker shares it: 2
MB less for an idle worker, 5 MB less for one that has worked. Nothing else is kept.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator
from ctypes import c_uint32
from pathlib import Path

from codebutler.config.paths import Home
from codebutler.config.programs import CONFIGURED, Choice
from codebutler.config.schema import AgentSection, Config, RepoSettings
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import SandboxUnavailableError
from codebutler.domain.model import Command, MessagePosted, Prompt, Request
from codebutler.domain.refs import NOWHERE, ConversationRef, MessageRef, PersonRef
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
    Finished,
    Started,
    Text,
    TurnRequest,
)
from codebutler_worker.agents.survey import Survey
from codebutler_worker.commands.table import load
from codebutler_worker.tree.tree import Tree
from codebutler_worker.tree.worktrees import Worktrees
from codebutler_worker.worker.bootstrap import serve

CHANNEL = ConversationRef("C000")
LIMIT_S = 10.0
TOLD, ENDED = "overview", "end"
REQUESTS: tuple[Request, ...] = (Command(name="ping"), Prompt(text="Are you there?"))
# In memory, if possible: none of it needs to survive a power cut.
STAGE = Path("/dev/shm")  # noqa: S108 - a directory with a random name is made in it


class HurriedClock(SystemClock):
    """A clock that hardly waits."""

    async def sleep(self, seconds: float) -> None:
        """At most ten milliseconds, whatever the argument."""
        await super().sleep(min(seconds, 0.01))


class _OneLineBackend(AgentBackend):
    """Says one line, asks nothing, and ends before it could be stopped."""

    name = "claude"

    async def start(self, turn: TurnRequest) -> AsyncGenerator[AgentEvent]:
        yield Started(turn.turn_id)
        yield Text("**Here.**")
        yield Finished(ok=True, text="**Here.**", reason="done")

    async def close(self) -> None:
        return


class _OneLineAgents:
    """The same agent under every name; no worktree, no working tree."""

    home = Path()

    async def get(self, name: str, choice: Choice = CONFIGURED) -> AgentBackend:  # noqa: ARG002 - the rehearsal needs none
        return _OneLineBackend()

    async def workdir(self, conversation: str, *, task: str | None = None) -> Path:  # noqa: ARG002 - the rehearsal needs none
        return Path()

    async def worktrees(self) -> Worktrees:
        raise SandboxUnavailableError("there is no worktree to rehearse with")

    async def tree(self, workdir: Path) -> Tree:  # noqa: ARG002 - the rehearsal needs none
        raise SandboxUnavailableError("there is no working tree to rehearse with")

    async def survey(self) -> tuple[Survey, ...]:
        return ()

    def release(self, conversation: str) -> None:  # noqa: ARG002 - the rehearsal needs none
        return

    async def close(self) -> None:
        return


def warm_up(stage: Path = STAGE) -> bool:
    """Run it; returns whether it succeeded. After a failure (say, a full temporary directory) everything
    works all the same."""
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
    """``told``: each request's outcome, the overview's report, and the order to end."""
    if isinstance(message, Hello):
        config = Config(agent=AgentSection(debounce_seconds=0))
        settings = RepoSettings(name="", path=str(directory), channel_id=CHANNEL, config=config)
        channel.send(Configure(settings=settings))
    elif isinstance(message, Ready):
        for seq, request in enumerate(REQUESTS, start=1):
            ref = MessageRef(f"1.{seq}")
            event = MessagePosted(
                channel=CHANNEL,
                ref=ref,
                sent_at=1.0,
                order=ref,
                is_direct=False,
                user=PersonRef("U000"),
                text="Are you there?",
            )
            channel.send(Deliver(seq=seq, event=event, request=request))
    elif isinstance(message, Send):
        channel.send(Sent(op_id=message.op_id, ref=MessageRef("2.1")))
    elif isinstance(message, TurnEnded):
        channel.send(Sent(op_id=message.op_id, ref=NOWHERE))
        told.append(message.outcome)
    elif isinstance(message, Overview):
        told.append(TOLD)
    if TOLD in told and len(told) - told.count(TOLD) == len(REQUESTS):
        told.append(ENDED)
        channel.send(Shutdown(reason="sleep", grace_s=LIMIT_S / 2))


# Objects without a reference count: using one writes nothing, so its page stays shared with the fork server.

TRIED = ((3, 12), (3, 13))
"""The versions of CPython that this was measured and tested with."""


def make_immortal() -> int:
    """Make every object of this process immortal; returns how many, 0 if this Python cannot do it. Only for a
    process that forks: each object that exists now is kept until the process ends, and in each of its children."""
    if not can_be_immortal():
        return 0
    immortal = sys.getrefcount(None)
    made, layer = 0, gc.get_objects()
    while layer:
        counted = []
        for each in layer:
            if sys.getrefcount(each) < immortal:
                c_uint32.from_address(id(each)).value = immortal
                counted.append(each)
        made += len(counted)
        layer = gc.get_referents(*counted)
    return made


def can_be_immortal() -> bool:
    """Whether this Python has immortal objects, and keeps an object's count where we expect it."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in TRIED:
        return False
    probe = object()
    is_there = c_uint32.from_address(id(probe)).value == sys.getrefcount(probe) - 1
    return is_there and c_uint32.from_address(id(None)).value == sys.getrefcount(None)

"""A real worker process from the real fork server: the rehearsal agent at work in a real repository."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codebutler.config.paths import Home
from codebutler.config.schema import AgentSection, Config, RepoSettings, SandboxMode, SandboxSection
from codebutler.domain.clock import Clock, SystemClock
from codebutler.domain.model import Event, Post, Prompt, Request
from codebutler.platform.system import this_system
from codebutler.protocol.messages import (
    Configure,
    Deliver,
    Goodbye,
    Hello,
    Log,
    Ready,
    Send,
    Sent,
    Shutdown,
    ToParent,
)
from codebutler.protocol.pipe import MessagePipe, to_parent_codec
from codebutler.supervisor.forkserver import ForkServer, WorkerProcess
from codebutler_worker.runtime.runtime import Agents
from codebutler_worker.sandbox.process import MARK
from codebutler_worker.worker.bootstrap import serve
from tests.containers import open_directory
from tests.events import posted
from tests.ordinary import give_away
from tests.programs import require
from tests.shown import blocks_of

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def forks() -> ForkServer:
    server = ForkServer()
    server.start()
    return server


def settings(repo: Path, mode: SandboxMode) -> RepoSettings:
    config = Config(
        agent=AgentSection(default="rehearsal", debounce_seconds=0), sandbox=SandboxSection(mode=mode)
    )
    return RepoSettings(name="sample", path=str(repo), channel_id="C0REPO", config=config)


def message(text: str, ts: str = "100.1") -> tuple[Event, Request]:
    return posted(channel="C0REPO", ref=ts, user="U0ANA", text=text), Prompt(text=text)


async def heard(process: WorkerProcess, messages: AsyncIterator[ToParent], kind: type[ToParent]) -> ToParent:
    """The next message of a kind; operations are taken meanwhile."""
    async with asyncio.timeout(DEADLINE_S):
        async for one in messages:
            if isinstance(one, Send):
                process.send(Sent(op_id=one.op_id, ref="9000.1" if isinstance(one.operation, Post) else ""))
            if isinstance(one, kind):
                return one
    raise AssertionError(f"the pipe ended before {kind}")


async def ready(
    forks: ForkServer, repo: Path, mode: SandboxMode = "none"
) -> tuple[WorkerProcess, AsyncIterator[ToParent]]:
    process = await forks.spawn("sample")
    messages = process.messages()
    await heard(process, messages, Hello)
    process.send(Configure(settings=settings(repo, mode)))
    await heard(process, messages, Ready)
    return process, messages


async def answer(process: WorkerProcess, messages: AsyncIterator[ToParent]) -> str:
    """The text of the next post that carries a footer."""
    while True:
        one = await heard(process, messages, Send)
        assert isinstance(one, Send)
        if isinstance(one.operation, Post) and blocks_of(one.operation):
            text = str(blocks_of(one.operation)[0].get("text", ""))
            if "_tokens:" in text:
                return text


@pytest.mark.parametrize("mode", ["none", "bwrap"])
async def test_it_answers_and_ends_when_told_to(forks: ForkServer, git_repo: Path, mode: SandboxMode) -> None:
    if mode == "bwrap":
        require("bwrap")
        await _answers_and_ends(forks, git_repo, mode)
        return
    # Without walls root starts nothing in what is its own.
    with open_directory() as base:
        shutil.copytree(git_repo, base / "repo")
        give_away(base / "repo")
        await _answers_and_ends(forks, base / "repo", mode)


async def _answers_and_ends(forks: ForkServer, git_repo: Path, mode: SandboxMode) -> None:
    process, messages = await ready(forks, git_repo, mode)
    event, request = message("read README.md")
    process.send(Deliver(seq=1, event=event, request=request))
    assert "A sample repository" in await answer(process, messages)
    assert (git_repo / ".codebutler" / ".gitignore").read_text() == "*\n"
    process.send(Shutdown(reason="shutdown", grace_s=10))
    await heard(process, messages, Goodbye)
    async with asyncio.timeout(DEADLINE_S):
        assert await process.wait_dead() == 0
    process.close()


async def test_it_ends_when_the_parent_is_gone(forks: ForkServer, git_repo: Path) -> None:
    process, _ = await ready(forks, git_repo)
    process.close()
    async with asyncio.timeout(5):
        assert await process.wait_dead() == 0


async def test_ctrl_c_is_for_the_parent_and_a_polite_kill_ends_it(forks: ForkServer, git_repo: Path) -> None:
    process, messages = await ready(forks, git_repo)
    process.kill(signal.SIGINT)
    process.kill(signal.SIGTERM)
    goodbye = await heard(process, messages, Goodbye)
    assert goodbye == Goodbye(reason="shutdown")
    async with asyncio.timeout(DEADLINE_S):
        assert await process.wait_dead() == 0
    process.close()


def test_what_every_worker_shares_holds_nothing_of_the_parents_or_the_migrations() -> None:
    code = (
        "import gc, sys, codebutler_worker.preload; assert gc.get_freeze_count() > 10_000; "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"sqlalchemy", "msgspec", "codebutler_worker"} <= loaded
    assert not loaded & {
        "alembic",
        "codebutler_migrations",
        "aiohttp",
        "httpx",
        "starlette",
        "slack_sdk",
        "typer",
    }


async def test_what_breaks_it_is_one_record(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    channel = await MessagePipe.over(ours, to_parent_codec())
    serving = asyncio.create_task(serve(theirs, SystemClock(), no_agents, Home(tmp_path / "home")))
    messages = channel.messages()
    assert isinstance(await anext(messages), Hello)
    channel.send(Configure(settings=settings(tmp_path, "auto")))
    async with asyncio.timeout(DEADLINE_S):
        heard = [message async for message in messages]
        assert await serving == 1
    assert [type(message) for message in heard] == [Log, Goodbye]
    assert "ZeroDivisionError: no agents today" in str(heard[0])
    assert "no_agents" in str(heard[0])
    assert "ZeroDivisionError" in str(heard[1])
    channel.close()
    await channel.wait_closed()


def no_agents(_settings: RepoSettings, _clock: Clock) -> Agents:
    raise ZeroDivisionError("no agents today")


async def test_the_programs_of_a_worker_that_was_killed_end_with_the_next_one(
    forks: ForkServer, git_repo: Path
) -> None:
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    mark = f"codebutler-{this_system().pid_namespace()}-{gone.pid}-1-left"
    orphan = await asyncio.create_subprocess_exec(
        "sleep", "300", env={"PATH": os.environ["PATH"], MARK: mark}
    )
    process, _ = await ready(forks, git_repo, "none")
    async with asyncio.timeout(DEADLINE_S):
        assert await orphan.wait() == -signal.SIGKILL
    process.send(Shutdown(reason="shutdown", grace_s=5))
    assert await process.wait_dead() == 0
    process.close()

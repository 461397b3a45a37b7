"""What programs that people start reach, and what checks do: behind the real walls, from settings to output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codebutler.config.programs import CHECKS, RUN
from codebutler.config.schema import CommandNetwork, CommandRule, Config, RepoSettings, SandboxSection
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import Finished, TurnRequest
from codebutler_worker.agents.shell.backend import shell_backend
from codebutler_worker.store.opening import prepare_state_dir
from tests.programs import require
from tests.walls import walled


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A service of this machine."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nprivate")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def said(rule: CommandRule, section: SandboxSection, repo: Path, words: str) -> str:
    prepare_state_dir(repo)
    settings = RepoSettings(name="r", path=str(repo), channel_id="C1", config=Config(sandbox=section))
    home = repo.parent / "home"
    backend = shell_backend(rule, settings, walled(), home, SystemClock())
    turn = TurnRequest(turn_id="0123456789abcdef", conversation="c", prompt=words, workdir=repo)
    async with asyncio.timeout(60):
        *_, last = [event async for event in backend.start(turn)]
    assert isinstance(last, Finished)
    return last.text


@pytest.mark.parametrize(
    ("network", "hosts", "expected"),
    [
        ("open", (), "private"),
        ("none", (), "connect"),
        ("hosts", (), "does not let this agent reach 127.0.0.1"),
        ("hosts", ("127.0.0.1",), "private"),
    ],
)
async def test_a_command_reaches_what_the_configuration_says(
    git_repo: Path, url: str, network: CommandNetwork, hosts: tuple[str, ...], expected: str
) -> None:
    require("curl")
    port = url.rstrip("/").rpartition(":")[2]
    section = SandboxSection(command_network=network, hosts=tuple(f"{host}:{port}" for host in hosts))
    through = "--noproxy ''" if network == "hosts" else ""
    assert expected in await said(RUN, section, git_repo, f"curl -sS {through} {url}")


async def test_checks_reach_what_agents_reach(git_repo: Path, url: str) -> None:
    require("curl")
    text = await said(CHECKS, SandboxSection(), git_repo, f"curl -sS {url}; curl -sS --noproxy '' {url}")
    assert "private" not in text
    assert "does not let this agent reach" in text
    assert "private" in await said(CHECKS, SandboxSection(network="open"), git_repo, f"curl -sS {url}")

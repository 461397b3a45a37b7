"""The stage of a measurement: a workspace in this process, a home with repositories, a real supervisor.

The supervisor is a process of its own, so what is measured shares no event loop with what measures.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from codebutler.config.paths import Home, RepoPaths
from codebutler.config.registry import Registry, RepoEntries, RepoEntry
from codebutler.domain.errors import NotRunningError
from codebutler.protocol.control import StatusReply, StatusRequest, ask
from codebutler.workspace.server import Options, WorkspaceServer
from tests.ordinary import give_away, give_repository_away

DEADLINE_S = 60.0
DONE, FAILED = "white_check_mark", "x"
AGENT = Path(__file__).with_name("agent.sh")


class BenchError(Exception):
    """Something did not happen that has to happen before anything can be measured."""


@dataclass(frozen=True)
class Pace:
    """How long and how often is measured, and how much is told. Spans are seconds."""

    rounds: int = 6
    events: int = 400
    per_s: float = 100.0
    turns: int = 12
    pause_s: float = 1.5
    wakes: int = 7
    idle_repos: int = 10
    settle_s: float = 8.0
    many_repos: int = 100
    helps: int = 11
    busy_s: int = 60
    hostile_s: float = 20.0
    past_turns: int = 20_000
    past_channels: int = 20
    burst_channels: int = 50
    storm_messages: int = 240
    cluster_hosts: int = 20
    cluster_repos: int = 100
    verbose: bool = False


QUICK = Pace(
    rounds=3,
    events=200,
    turns=5,
    wakes=3,
    settle_s=6.0,
    helps=5,
    busy_s=20,
    hostile_s=5,
    past_turns=5_000,
    past_channels=4,
    burst_channels=20,
    storm_messages=80,
    cluster_hosts=4,
    cluster_repos=25,
)


@dataclass
class Scene:
    """Made by ``scene``; the repositories are named as their channels."""

    server: WorkspaceServer
    home: Home
    names: tuple[str, ...]
    env: dict[str, str]
    supervisor: subprocess.Popen[bytes] | None = field(default=None)
    through: tuple[str, ...] = ()
    """A program that runs the supervisor, with its arguments."""

    async def supervise(self, ready: Callable[[dict[str, Any]], bool] | None = None) -> float:
        """Start the supervisor; returns the seconds until it is connected and every worker is ready."""
        began_s = time.monotonic()
        self.supervisor = self._start()
        await self.until_status(ready or all_ready)
        return time.monotonic() - began_s

    def _start(self) -> subprocess.Popen[bytes]:
        with self.output.open("ab") as log:
            return subprocess.Popen(
                [*self.through, *command("supervise")],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def until_status(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask for the status until it is as wanted. Raises BenchError with the supervisor's own words."""
        status: dict[str, Any] | None = None
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            if self.supervisor is None or self.supervisor.poll() is not None:
                break
            status = await self._status()
            if status is not None and wanted(status):
                return status
            # The status reads every worker's memory: asked too often it would be what is measured.
            await asyncio.sleep(0.02 + 0.001 * len(self.names))
        raise BenchError(f"not as wanted, last {status}\n{self.output.read_text(errors='replace')}")

    async def _status(self) -> dict[str, Any] | None:
        try:
            async with aclosing(ask(self.home.socket, StatusRequest())) as replies:
                async for reply in replies:
                    if isinstance(reply, StatusReply):
                        return reply.status
        except NotRunningError:
            return None
        return None

    async def asked(self, text: str, answered: str, where: str = "") -> tuple[float, dict[str, Any]]:
        """Say ``text`` in a channel, by default the first; returns when (Unix time) and the reply that has
        ``answered``."""
        try:
            return await asked(self.server, where or self.names[0], text, answered)
        except BenchError as error:
            raise BenchError(f"{error}\n{self.output.read_text(errors='replace')}") from None

    async def finished(self, ts: str, within_s: float = DEADLINE_S) -> None:
        """Until the message in the first channel has the mark of what was done. Raises BenchError for any other
        outcome."""

        def outcome() -> set[str]:
            marks = self.server.thread(self.names[0], ts)[0].get("reactions", [])
            return {DONE, FAILED} & {mark["name"] for mark in marks}

        try:
            found = await self.server.until(outcome, within_s)
        except TimeoutError:
            found = set()
        if found != {DONE}:
            raise BenchError(f"not done: {found or 'no outcome'}\n{self.output.read_text(errors='replace')}")

    @property
    def output(self) -> Path:
        """What the supervisor prints."""
        return self.home.root / "supervise.out"

    async def stop(self) -> None:
        """End the supervisor, if it runs."""
        if self.supervisor is None or self.supervisor.poll() is not None:
            return
        self.supervisor.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self.supervisor.wait, 30)
        except subprocess.TimeoutExpired:
            self.supervisor.kill()
            await asyncio.to_thread(self.supervisor.wait)


def all_ready(status: dict[str, Any]) -> bool:
    """Connected, and every worker runs."""
    repos = status["repos"]
    return status["slack"]["state"] == "connected" and all(r["worker"]["state"] == "running" for r in repos)


def whole_text(message: dict[str, Any]) -> str:
    """A message's text and the texts of its blocks."""
    blocks = [str(block.get("text", "")) for block in message.get("blocks", [])]
    return "\n".join([str(message.get("text", "")), *blocks])


async def asked(
    server: WorkspaceServer, channel: str, text: str, answered: str
) -> tuple[float, dict[str, Any]]:
    """Say ``text``; returns when (Unix time) and the reply that has ``answered``. Raises BenchError."""
    ts = server.say(channel, text)

    def look() -> dict[str, Any] | None:
        said = [message for message in server.thread(channel, ts) if message.get("bot_id")]
        return next((message for message in said if answered in whole_text(message)), None)

    try:
        return float(ts), await server.until(look, DEADLINE_S)
    except TimeoutError:
        raise BenchError(f"no answer with {answered!r}: {server.thread(channel, ts)}") from None


def command(*arguments: str) -> list[str]:
    """`codebutler`, run by this interpreter."""
    return [sys.executable, "-I", "-m", "codebutler", *arguments]


@asynccontextmanager
async def scene(
    place: Path, repos: int = 1, *, idle_sleep_minutes: float = 0, debounce_s: float = 0, strict: bool = False
) -> AsyncIterator[Scene]:
    """``repos`` repositories in ``place``, which must not exist yet, whose agent is ``agent.sh``; ``strict``: Slack
    refuses what is beyond its limits, and the agent is the rehearsal one, which costs no process."""
    names = tuple(f"repo{number}" for number in range(repos))
    user = place / "user"
    user.mkdir(parents=True)
    give_away(user)
    (place / "bin").mkdir()
    shutil.copy2(AGENT, place / "bin" / "claude")
    home = Home(place / "home").ensure()
    async with WorkspaceServer(Options(channels=names, with_limits=strict)) as server:
        agent = {
            "default": "rehearsal" if strict else "claude",
            "debounceSeconds": debounce_s,
        }
        _write_home(home, server, place / "bin" / "claude", idle_sleep_minutes, agent)
        entries = [_repo(place / "repos" / name, name, server.channel_id(name)) for name in names]
        Registry(home).update(lambda _: _tuple(entries))
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(user),
            "LANG": "C.UTF-8",
            "CODEBUTLER_HOME": str(home.root),
        }
        built = Scene(server, home, names, env)
        try:
            yield built
        finally:
            await built.stop()


def _tuple(entries: list[RepoEntry]) -> RepoEntries:
    return tuple(entries)


def _write_home(
    home: Home, server: WorkspaceServer, claude: Path, idle_sleep_minutes: float, agent: dict[str, Any]
) -> None:
    config = {
        "slack": server.section,
        "agent": agent,
        "claude": {"binary": str(claude)},
        "worker": {"idleSleepMinutes": idle_sleep_minutes},
        "sandbox": {"mode": "auto" if shutil.which("bwrap") else "none"},
        "dashboard": {"enabled": False},
    }
    home.config.touch(mode=0o600)
    home.config.write_bytes(msgspec.json.encode(config))


def _repo(path: Path, name: str, channel_id: str) -> RepoEntry:
    path.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(path)], check=True, capture_output=True)
    give_repository_away(path)
    with RepoPaths(path).open(create=True):
        return RepoEntry(name=name, path=str(path.resolve()), channel_id=channel_id)

"""Where a soak happens: a house with many repositories, each answered by the rehearsal agent."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from codebutler.config.paths import Home, RepoPaths
from codebutler.config.registry import Registry, RepoEntries, RepoEntry
from codebutler.workspace.server import Options, WorkspaceServer
from codebutler.workspace.socket import Timing
from codebutler.workspace.state import Message
from tests.e2e.house import House
from tests.ordinary import give_away, give_repository_away, open_the_way
from tests.soak import jobs

# Slack offers an event again after 1 s, 60 s and 300 s; a soak has not so much time, and more outages.
TIMING = Timing(retries_s=(1.0, 3.0, 6.0, 10.0, 20.0, 30.0))
WORK_FILE = "soak.txt"


@dataclass(frozen=True)
class Repo:
    name: str
    channel: str
    path: Path

    def done(self) -> list[str]:
        """The tokens in the order in which the agent wrote them."""
        file = self.path / WORK_FILE
        return file.read_text().split() if file.exists() else []

    def jobs_done(self) -> int:
        """How often the work of its job was done."""
        file = self.path / jobs.WORK_FILE
        return len(file.read_text().split()) if file.exists() else 0

    def put(self, name: str) -> None:
        """Make a file, as somebody who works there."""
        (self.path / name).touch()
        give_away(self.path / name)


@dataclass(frozen=True)
class Stage:
    """A running house and its repositories."""

    built: House
    repos: tuple[Repo, ...]

    def messages(self, repo: Repo) -> Mapping[str, Message]:
        """All of a repository's channel, by ts."""
        return self.built.workspace.workspace.channel(repo.channel).messages

    def end_jobs(self) -> None:
        """No job begins any more."""
        for repo in self.repos:
            (repo.path / ".codebutler" / "jobs.yaml").unlink()

    def came_in(self) -> dict[tuple[str, str], int]:
        """By channel and ts, the order in which the messages were accepted."""
        journal = Home(self.built.home).journal
        with contextlib.closing(sqlite3.connect(f"{journal.as_uri()}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT key, seq FROM entries WHERE key LIKE 'message:%'").fetchall()
        return {(key.split(":")[1], key.split(":")[2]): seq for key, seq in rows}


@asynccontextmanager
async def stage(
    place: Path, count: int, prefix: Sequence[str] = (), parallel_turns: int = 1
) -> AsyncIterator[Stage]:
    """``count`` repositories in ``place`` and a supervisor that is up with all of them. ``prefix``: a program that runs
    it without Slack's limits, which are enforced otherwise."""
    names = tuple(f"repo{number}" for number in range(count))
    user, home = place / "user", Home(place / "home").ensure()
    user.mkdir()
    open_the_way(place)
    async with WorkspaceServer(Options(channels=names, timing=TIMING, with_limits=not prefix)) as workspace:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(user),
            "LANG": "C.UTF-8",
            "CODEBUTLER_HOME": str(home.root),
        }
        built = House(workspace, home.root, env)
        _configure(home, workspace, parallel_turns)
        repos = tuple(_repo(place / "repos" / name, name, workspace) for name in names)
        Registry(home).update(lambda _: _entries(repos))
        try:
            built.prefix = tuple(prefix)
            await built.supervise()
            built.prefix = ()
            yield Stage(built, repos)
        finally:
            if built.supervisor is not None and built.supervisor.returncode is None:
                await built.stop()


def _configure(home: Home, workspace: WorkspaceServer, parallel_turns: int) -> None:
    config = {
        "slack": workspace.section,
        "agent": {"default": "rehearsal", "debounceSeconds": 0, "parallelTurns": parallel_turns},
        "dashboard": {"enabled": False},
    }
    home.config.touch(mode=0o600)
    home.config.write_text(json.dumps(config))


def _repo(path: Path, name: str, workspace: WorkspaceServer) -> Repo:
    path.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(path)], check=True, capture_output=True)
    give_repository_away(path)
    with RepoPaths(path).open(create=True):
        file = path / ".codebutler" / "jobs.yaml"
        file.write_text(jobs.JOBS)
        give_away(file)
        channel = workspace.channel_id(name)
        workspace.call("conversations.join", workspace.bot_token, channel=channel)
        return Repo(name, channel, path)


def _entries(repos: tuple[Repo, ...]) -> RepoEntries:
    return tuple(RepoEntry(name=r.name, path=str(r.path.resolve()), channel_id=r.channel) for r in repos)

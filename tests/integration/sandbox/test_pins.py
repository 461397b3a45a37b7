"""Somebody outside replaces what is pinned inside, as `git config` does, while a program runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.platform.linux import HEAD, events
from codebutler.platform.system import NameEvent
from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.cgroups import ResourceLimits
from codebutler_worker.sandbox.checkout import inspect_checkout
from codebutler_worker.sandbox.docker import DockerSandbox
from codebutler_worker.sandbox.limits import AgentSandbox, Limiter
from codebutler_worker.sandbox.pins import Watcher
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy
from codebutler_worker.sandbox.process import AgentProcess
from codebutler_worker.sandbox.pty import PtyProcess
from tests.dockerd import made_by
from tests.ordinary import give_away
from tests.programs import require

WAITS = ("sh", "-c", "echo up; trap '' TERM; while :; do sleep 100; done")
# Waits until the mount on the configuration is gone, and takes its chance. It says that it is up after the
# first try, since a try between that word and the replacement would be the race, not the rule.
TRIES = (
    "sh",
    "-c",
    "until echo '[core]fsmonitor=evil' >> .git/config; do echo up; sleep 5; done 2>/dev/null",
)


@pytest.fixture(params=["bwrap", pytest.param("docker", marks=pytest.mark.root)])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    if request.param == "bwrap":
        yield AgentSandbox(
            BwrapSandbox(program=require("bwrap")), Limiter.detect(ResourceLimits(processes=100))
        )
        return
    docker = DockerSandbox(host=request.getfixturevalue("docker_host"))
    yield docker
    await docker.close()
    assert made_by(request.getfixturevalue("docker_host"), os.getpid()) == []


@pytest.fixture
def policy(git_repo: Path, tmp_path: Path, sandbox: Sandbox) -> SandboxPolicy:
    (tmp_path / "home").mkdir()
    (git_repo / ".codebutler").mkdir()
    if sandbox.name == "docker":
        give_away(tmp_path)
    env = {"PATH": "/usr/bin:/bin"}
    return SandboxPolicy(workdir=git_repo, home=tmp_path / "home", env=env, network="none", conversation="c")


def git(repo: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "safe.directory=*", *words], cwd=repo, check=True)
    if os.geteuid() == 0:
        give_away(repo / ".git", repo.stat().st_uid)


@pytest.mark.parametrize("argv", [WAITS, TRIES])
async def test_a_program_that_lost_its_walls_is_ended_and_told_why(
    sandbox: Sandbox, policy: SandboxPolicy, argv: tuple[str, ...]
) -> None:
    async with await AgentProcess(sandbox.wrap(argv, policy)).start() as process:
        assert await anext(process.lines()) == b"up"
        git(policy.workdir, "config", "user.name", "somebody")
        assert await process.wait() != 0
        await process.stop()
        assert process.limit_hit.startswith("config was replaced from outside")
        assert f"check {policy.workdir}/.git/config before you run git" in process.limit_hit
        assert "\n" not in process.limit_hit
    assert "fsmonitor" not in (policy.workdir / ".git" / "config").read_text()


def by_git(config: Path) -> None:
    git(config.parent.parent, "config", "user.name", "somebody")


def by_itself(config: Path) -> None:
    """Between two looks: the same inode has no mount on it any more. A new file may get the inode as well."""
    os.link(config, kept := config.with_name("kept"))
    config.unlink()
    kept.rename(config)


@pytest.mark.parametrize("replaced", [by_git, by_itself])
async def test_so_it_is_where_the_system_has_no_watches_left(
    sandbox: Sandbox, policy: SandboxPolicy, replaced: Callable[[Path], None]
) -> None:
    """Agents are the same user: they can take all there are."""
    launch = sandbox.wrap(WAITS, policy)
    assert isinstance(launch.guard, partial)
    launch = replace(launch, guard=partial(Watcher(polls=True).hold, *launch.guard.args))
    async with await AgentProcess(launch).start() as process:
        assert await anext(process.lines()) == b"up"
        replaced(policy.workdir / ".git" / "config")
        assert await process.wait() != 0
        await process.stop()
        assert process.limit_hit.startswith("config was replaced from outside")


async def test_so_is_one_at_a_terminal(sandbox: Sandbox, policy: SandboxPolicy) -> None:
    launch = sandbox.wrap(WAITS, replace(policy, own_terminal=True))
    async with await PtyProcess(launch, lambda *_: None).start() as process:
        await process.output.wait()
        (policy.workdir / ".git" / "hooks").rename(policy.workdir / ".git" / "hooks2")
        await process.ended.wait()
        assert "hooks was replaced" in process.limit_hit


async def test_what_people_do_otherwise_with_git_stops_nobody(
    sandbox: Sandbox, policy: SandboxPolicy, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    git(policy.workdir, "worktree", "add", "-q", str(tree))
    async with await AgentProcess(sandbox.wrap(("sh", "-c", "echo up; cat"), policy)).start() as process:
        lines = process.lines()
        assert await anext(lines) == b"up"
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
        (policy.workdir / "new").touch()
        for words in (
            ("add", "."), (*identity, "commit", "-qm", "new"), ("checkout", "-qb", "other"), ("gc", "-q"),
            ("worktree", "add", "-q", f"{tree}2"), ("worktree", "remove", "--force", str(tree)), ("tag", "v1"),
            ("worktree", "remove", "--force", f"{tree}2"), ("branch", "third"),
        ):  # fmt: skip
            git(policy.workdir, *words)
        assert await process.write_line(b"still here")
        assert await anext(lines) == b"still here"
        assert process.limit_hit == ""


async def test_nothing_is_held_when_nothing_runs(git_repo: Path) -> None:
    watcher = Watcher()
    before = len(list(Path("/proc/self/fd").iterdir()))
    first, second = (watcher.hold(inspect_checkout(git_repo)) for _ in range(2))
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1
    watcher.release(first)
    watcher.release(first)
    watcher.release(second)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_events_are_read_as_the_kernel_writes_them() -> None:
    data = HEAD.pack(1, 0x80, 7, 16) + b"config".ljust(16, b"\0") + HEAD.pack(-1, 0x4000, 0, 0)
    assert events(data) == [(1, 0x80, "config"), (-1, 0x4000, "")]


async def test_what_is_uncertain_counts_as_gone(git_repo: Path) -> None:
    watcher = Watcher()
    held = watcher.hold(inspect_checkout(git_repo))
    watcher.release(held)
    assert held.affected(NameEvent(None, "", unsure=True)) is not None
    assert held.affected(NameEvent(git_repo / ".git", "", gone=True, whole=True)) is not None
    assert held.affected(NameEvent(git_repo / ".git", "index.lock")) is None
    assert held.affected(NameEvent(git_repo / "src", "config")) is None

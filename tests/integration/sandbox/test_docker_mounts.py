"""Somebody exchanges what is to be mounted between our look and the daemon's: nothing starts."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.docker import DockerSandbox
from codebutler_worker.sandbox.port import SandboxPolicy
from tests.containers import attack
from tests.dockerd import made_by
from tests.ordinary import give_away

SECRET = "the secret"


@pytest.fixture
async def sandbox(docker_host: str) -> AsyncIterator[DockerSandbox]:
    sandbox = DockerSandbox(host=docker_host)
    yield sandbox
    await sandbox.close()
    assert made_by(docker_host, os.getpid()) == []


@pytest.fixture
def policy(tmp_path: Path, git_repo: Path) -> SandboxPolicy:
    (tmp_path / "home" / ".agent").mkdir(parents=True)
    (git_repo / ".codebutler" / "files").mkdir(parents=True)
    (git_repo / ".codebutler" / "store.db").write_text(SECRET)
    (tmp_path / "outside" / "files").mkdir(parents=True)
    (tmp_path / "outside" / "kept").write_text(SECRET)
    give_away(tmp_path)
    return SandboxPolicy(
        workdir=git_repo,
        home=tmp_path / "home",
        home_paths=(tmp_path / "home" / ".agent",),
        env={"PATH": "/usr/bin:/bin"},
        network="none",
        conversation="C1:1.1",
    )


@pytest.mark.parametrize("by", ["link", "other"])
@pytest.mark.parametrize(
    "name",
    ["repo/.git", "repo/.git/hooks", "repo/.git/config", "repo/.codebutler", "repo/.codebutler/files", "repo",
     "home/.agent"],
)  # fmt: skip
async def test_what_was_looked_at_is_what_is_mounted(
    sandbox: DockerSandbox, policy: SandboxPolicy, tmp_path: Path, name: str, by: str
) -> None:
    """``link``: to a directory of somebody else's; ``other``: one of the same kind."""
    place, outside = tmp_path / name, tmp_path / "outside"
    launch = sandbox.wrap(("sh", "-c", "cat kept .codebutler/* .git/*/kept"), policy)
    kind = place.is_file()
    place.rename(tmp_path / "moved")
    if by == "link":
        place.symlink_to(outside / "kept" if kind else outside)
    elif kind:
        place.write_text("other")
    else:
        place.mkdir()
    assert launch.enclose is not None
    with pytest.raises(SandboxUnavailableError) as caught:
        await launch.enclose(launch.argv)
    assert "\n" not in str(caught.value)


async def test_a_container_that_waits_is_not_taken_when_what_it_shows_was_replaced(
    sandbox: DockerSandbox, policy: SandboxPolicy
) -> None:
    """Whoever replaces a file takes away what is mounted on it, in every container."""
    config = policy.workdir / ".git" / "config"
    await attack(sandbox, policy, "true")
    new = config.with_name("config.new")
    new.write_bytes(config.read_bytes())
    give_away(new)
    new.rename(config)
    assert (await attack(sandbox, policy, "echo x >> .git/config"))[0] != 0
    assert "x\n" not in config.read_text()


async def test_a_race_is_never_won(sandbox: DockerSandbox, policy: SandboxPolicy, tmp_path: Path) -> None:
    """Another thread exchanges a directory with a link, and back, as fast as it can, while containers are made."""
    place, aside, link = policy.workdir / ".codebutler" / "files", tmp_path / "aside", tmp_path / "lure"
    link.symlink_to(tmp_path / "outside")
    (place / "kept").write_text("mine")
    give_away(place)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            place.rename(aside)
            link.rename(place)
            place.rename(link)
            aside.rename(place)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = []
    try:
        for _ in range(6):
            try:
                seen.append((await attack(sandbox, policy, "cat .codebutler/files/kept"))[1])
            except SandboxUnavailableError:
                seen.append("refused")
            await sandbox.release(policy.conversation)
            await asyncio.sleep(0)
    finally:
        over.set()
        swapper.join()
    assert not any(SECRET in said for said in seen)

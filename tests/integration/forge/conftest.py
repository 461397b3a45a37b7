"""What the tests of pushes are given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.forgeserver.github import NAME, OWNER, GitHubServer, serving
from tests.integration.forge.kit import Desk, desk_at, git, owners_ssh
from tests.programs import require


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The owner's home, with a configuration of git of theirs."""
    place = tmp_path / "owner"
    place.mkdir()
    (place / ".gitconfig").write_text("[user]\n\tname = Ana\n\temail = ana@example.org\n")
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return place


@pytest.fixture
def desk(tmp_path: Path, home: Path) -> Desk:
    require("git")
    return desk_at(tmp_path)


@pytest.fixture
async def github(desk: Desk, home: Path) -> AsyncIterator[GitHubServer]:
    """Its git is reached over what the owner takes for ssh."""
    owners_ssh(desk, home)
    async with serving(GitHubServer(desk.remote)) as server:
        git(desk.repo, "remote", "set-url", "origin", f"git@localhost:{OWNER}/{NAME}.git")
        yield server

"""Whose a repository is, and whether he gets there: asked of real directories."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from codebutler.config.git_repo import Owner, is_tracked, repo_root, sudo_user, unreachable_because
from codebutler.domain.errors import CodeButlerError
from tests.ordinary import give_away

STRANGER = Owner(4321, 4321)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that everybody gets to: pytest's own, and a home, may keep others out."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        path = Path(directory).resolve()
        path.chmod(0o755)
        yield path


@pytest.mark.parametrize(
    ("env", "who"),
    [
        ({}, Owner(1000, 1000)),
        ({"SUDO_UID": "1234", "SUDO_GID": "1235"}, Owner(1234, 1235)),
        ({"SUDO_UID": "1234", "SUDO_GID": "0"}, Owner(1234, 1234)),
        ({"SUDO_UID": "1234"}, Owner(1234, 1234)),
        ({"SUDO_UID": "0", "SUDO_GID": "0"}, Owner(1000, 1000)),
        ({"SUDO_UID": "-1", "SUDO_GID": "x"}, Owner(1000, 1000)),
    ],
)
def test_who_root_was_before(env: dict[str, str], who: Owner) -> None:
    assert sudo_user(env) == who


def test_a_group_of_roots_is_not_taken_along() -> None:
    found = os.stat_result((0o40755, 1, 1, 1, 1234, 0, 0, 0, 0, 0))
    assert Owner.of(found) == Owner(1234, 1234)


def barrier(path: Path, owner: Owner) -> Path | None:
    told = unreachable_because(owner, path)
    return Path(told.partition(f"{path}: ")[2].partition(" is closed")[0]) if told else None


def test_the_first_directory_that_keeps_somebody_out_is_named(reachable: Path) -> None:
    inner = reachable / "outer" / "inner"
    inner.mkdir(parents=True)
    (reachable / "outer").chmod(0o711)
    inner.chmod(0o700)
    assert barrier(inner, STRANGER) is None  # the last one need not let through
    assert barrier(inner / "repo", STRANGER) == inner
    (reachable / "outer").chmod(0o700)
    assert barrier(inner / "repo", STRANGER) == reachable / "outer"
    mine = Owner.at(reachable / "outer")
    assert barrier(inner / "repo", mine) is None
    (reachable / "outer").chmod(0o070)
    assert (
        barrier(inner / "repo", mine) == reachable / "outer"
    )  # as the kernel: the owner's bits, not the group's
    (reachable / "outer").chmod(0o710)
    assert barrier(inner / "repo", Owner(4321, mine.gid)) == inner


def test_one_line_says_what_to_do(reachable: Path) -> None:
    (away := reachable / "away").mkdir(mode=0o700)
    (away / "repo").mkdir()
    told = unreachable_because(STRANGER, away / "repo")
    assert f"agents run as user 4321, who cannot reach {away / 'repo'}" in told
    assert f"chmod o+x {away}" in told
    assert "\n" not in told
    assert unreachable_because(STRANGER, away) == ""


@pytest.mark.root
def test_root_asks_git_about_somebodys_repository_without_an_exception_for_it(
    git_repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_CONFIG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/nonexistent")
    assert subprocess.run(["git", "status"], cwd=git_repo, capture_output=True).returncode == 128
    assert repo_root(git_repo / "src") == git_repo
    assert is_tracked(git_repo, "README.md")
    assert not is_tracked(git_repo, "missing")


@pytest.mark.root
def test_what_git_would_not_serve_its_owner_is_told_in_one_line(git_repo: Path, tmp_path: Path) -> None:
    os.chown(git_repo / ".git", 0, 0)
    with pytest.raises(CodeButlerError, match=f"chown -R 1000:1000 {git_repo}") as caught:
        repo_root(git_repo)
    assert "\n" not in str(caught.value)
    give_away(git_repo)
    (away := tmp_path / "away").mkdir(mode=0o700)
    with pytest.raises(CodeButlerError, match=rf"chmod o\+x {away}"):
        repo_root(git_repo.rename(away / "repo"))

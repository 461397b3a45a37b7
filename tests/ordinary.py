"""Tests that root runs: agents are an ordinary user there, so what they work on belongs to one, and he gets to it."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

ORDINARY_ID = 1000
STATE = ".codebutler"
SHARED = ("files", "images", "worktrees")


def give_away(directory: Path, uid: int = ORDINARY_ID) -> None:
    """To an ordinary user, if we are root: no agent is root."""
    if os.geteuid() != 0:
        return
    for path in _all_of(directory):
        # What runs there meanwhile may take it away.
        with contextlib.suppress(FileNotFoundError):
            os.chown(path, uid, uid, follow_symlinks=False)


def _all_of(directory: Path) -> Iterator[Path]:
    yield directory
    for place, directories, files in os.walk(directory):
        yield from (Path(place, name) for name in (*directories, *files))


def sample_repository(place: Path) -> Path:
    """A fresh repository with one commit, README.md and src/app.py; an ordinary user's."""
    repo = place / "repo"
    (repo / "src").mkdir(parents=True)
    (repo / "README.md").write_text("# Sample\n\nA sample repository.\n")
    (repo / "src" / "app.py").write_text('def greet(name):\n    return f"hello {name}"\n')
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main"]
    for args in (["init", "-q"], ["add", "."], ["commit", "-qm", "Start"]):
        subprocess.run(["git", *identity, *args], cwd=repo, check=True)
    give_away(repo)
    return repo


def give_repository_away(repo: Path, uid: int = ORDINARY_ID) -> None:
    """As its owner would have it: all is his but our own directory, of which he has what agents share."""
    if os.geteuid() != 0:
        return
    os.chown(repo, uid, uid)
    for path in repo.iterdir():
        if path.name != STATE:
            give_away(path, uid)
        elif path.is_dir() and not path.is_symlink():
            os.chown(path, -1, uid)
            path.chmod(path.stat().st_mode | 0o010)
            for shared in SHARED:
                if (path / shared).is_dir() and not (path / shared).is_symlink():
                    give_away(path / shared, uid)


def give_home_away(home: Path, repo: Path) -> None:
    """A home of the tests' own, but for ``repo``, if that lies in it."""
    if os.geteuid() == 0 and home.is_dir() and home not in (Path.home(), Path("/")):
        os.chown(home, ORDINARY_ID, ORDINARY_ID)
        for path in home.iterdir():
            if not repo.is_relative_to(path):
                give_away(path)


def give_logins_away(home: Path) -> None:
    """Of a home that is not the agents' alone: itself, and what programs keep there."""
    if os.geteuid() == 0:
        os.chown(home, ORDINARY_ID, ORDINARY_ID)
        for path in home.glob(".*"):
            if path.name != STATE:
                give_away(path)


def open_the_way(path: Path) -> None:
    """Let every user walk to ``path``, which pytest's own directories do not."""
    if os.geteuid() == 0:
        for directory in (each for each in (path, *path.parents) if each.is_dir()):
            mode = stat.S_IMODE(directory.stat().st_mode)
            if mode & 0o011 != 0o011:
                directory.chmod(mode | 0o011)


def gits_environment(place: Path) -> dict[str, str]:
    """What the tests' own git needs where root runs it on an ordinary user's repository, in a file in ``place``. The
    product has none of it."""
    if os.geteuid() != 0:
        return {}
    (file := place / "gitconfig").write_text("[safe]\n\tdirectory = *\n")
    return {"GIT_CONFIG_GLOBAL": str(file)}

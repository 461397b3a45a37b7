"""An agent decides how many files it changes, and what they are called: the worker goes on while it reads of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from codebutler_worker.tree.tree import LIMIT_BYTES, Git, Tree
from tests.integration.tree.conftest import Committed
from tests.integration.tree.test_tree import git
from tests.pulse import Pulse
from tests.walls import as_it_is

MANY = 100_000
HELD_UP_S = 4.0
LONG_NAME = "n" * 240
LEVELS = 15


async def test_very_many_changed_files_hold_up_nothing(tmp_path: Path, committed: Committed) -> None:
    repo = committed({"a.txt": "one\n"})
    blob = git(repo, "rev-parse", "HEAD:a.txt").strip()
    before, after = commits(repo, "".join(f"100644 blob {blob}\tf{number:06d}\n" for number in range(MANY)))
    tree, pulse = Tree(Git(as_it_is(), repo, tmp_path / "home")), Pulse()
    async with pulse.felt():
        found = await tree.difference(before, after, limit_bytes=1)
    assert len(found.files) == MANY
    assert (found.files[0].path, found.files[-1].path) == ("f000000", f"f{MANY - 1:06d}")
    assert pulse.worst_s < HELD_UP_S


async def test_names_longer_than_what_is_read_are_cut_off_anywhere(
    tmp_path: Path, committed: Committed
) -> None:
    """Whatever the last name is, of which only the beginning is there."""
    repo = committed({"a.txt": "one\n"})
    blob = git(repo, "rev-parse", "HEAD:a.txt").strip()
    inner = made(repo, "".join(f"100644 blob {blob}\t{LONG_NAME}{number:04d}\n" for number in range(3000)))
    for _ in range(LEVELS):
        inner = made(repo, f"040000 tree {inner}\t{LONG_NAME}\n")
    before, after = commits(repo, f"040000 tree {inner}\tdeep\n")
    tree = Tree(Git(as_it_is(), repo, tmp_path / "home"))
    found = await tree.difference(before, after, limit_bytes=1)
    assert found.cut
    assert 1000 < len(found.files) < LIMIT_BYTES // (LEVELS * len(LONG_NAME)) + 1
    assert all(file.path.startswith("deep/") and file.added == 1 for file in found.files)


def commits(repo: Path, entries: str) -> tuple[str, str]:
    """An empty tree, and one with these entries."""
    before = git(repo, "commit-tree", "-m", "before", made(repo, "")).strip()
    return before, git(repo, "commit-tree", "-m", "after", "-p", before, made(repo, entries)).strip()


def made(repo: Path, entries: str) -> str:
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "mktree"],
        cwd=repo,
        input=entries,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()

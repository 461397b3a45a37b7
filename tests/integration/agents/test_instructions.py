"""What a repository tells agents is read from a checkout that nobody vouches for."""

from __future__ import annotations

import os
from pathlib import Path

from codebutler_worker.agents.running import INSTRUCTIONS_BYTES, repository_says

FILES = ("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")


def test_every_file_of_instructions_is_named(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / "CLAUDE.md").write_text("root\n")
    (tmp_path / ".claude" / "CLAUDE.md").write_text("inner")
    text = repository_says(tmp_path, FILES)
    assert text == "# The repository's CLAUDE.md\n\nroot\n\n# The repository's .claude/CLAUDE.md\n\ninner"


def test_none_is_nothing(tmp_path: Path) -> None:
    assert repository_says(tmp_path, FILES) == ""
    assert repository_says(tmp_path / "absent", FILES) == ""


def test_a_link_leads_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "CLAUDE.md").write_text("the key")
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "CLAUDE.md").symlink_to(secret / "CLAUDE.md")
    (repo / ".claude").symlink_to(secret)
    assert repository_says(repo, FILES) == ""


def test_a_pipe_or_a_directory_does_not_hold_us(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "CLAUDE.md")
    (tmp_path / "CLAUDE.local.md").mkdir()
    assert repository_says(tmp_path, FILES) == ""


def test_a_huge_or_binary_file_is_cut(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_bytes(b"\xff" * (2 * INSTRUCTIONS_BYTES))
    text = repository_says(tmp_path, FILES)
    assert text.removeprefix("# The repository's CLAUDE.md\n\n") == "\ufffd" * INSTRUCTIONS_BYTES

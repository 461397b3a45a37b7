"""No path that a model names leads out of the repository, or to what agents may not see."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from codebutler_worker.tools.confined import check_readable, check_writable, is_directory, relative_path
from codebutler_worker.tools.tool import ToolError

LIMIT = 2**20


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("token")
    root = tmp_path / "repo"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("one\n")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("[core]\n")
    (root / ".codebutler" / "files").mkdir(parents=True)
    (root / ".codebutler" / "store.db").write_text("rows")
    (root / ".codebutler" / "files" / "sent.txt").write_text("from a person")
    (root / "out").symlink_to(tmp_path)
    (root / "leak").symlink_to(tmp_path / "secret")
    (root / "inner").symlink_to(root / "src" / "a.py")
    return root


@pytest.mark.parametrize("path", ["src/a.py", "./src/a.py", "src//a.py", ".codebutler/files/sent.txt"])
def test_files_of_the_repository_are_read(repo: Path, path: str) -> None:
    assert check_readable(repo, path, LIMIT) == check_readable(repo, str(repo / path), LIMIT)


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "src/../../secret",
        "/etc/passwd",
        "leak",
        "out/secret",
        "inner",
        ".codebutler/store.db",
        ".CodeButler/store.db",
        ".codebutler",
        "src/\0a",
        "missing",
        "src",
    ],
)
def test_nothing_else_is_read(repo: Path, path: str) -> None:
    with pytest.raises(ToolError, match=r"^[^\n]+$"):
        check_readable(repo, path, LIMIT)


@pytest.mark.parametrize(
    "path", ["src/new.py", "new/deep/file", ".codebutler/files/made.txt", ".github/x.yml"]
)
def test_files_of_the_repository_are_written(repo: Path, path: str) -> None:
    assert check_writable(repo, path) == path


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        ".GIT/config",
        "sub/.git/config",
        "leak",
        "out/new",
        "..",
        ".",
        "src/a.py/b",
        ".codebutler/x",
    ],
)
def test_nothing_else_is_written(repo: Path, path: str) -> None:
    with pytest.raises(ToolError, match=r"^[^\n]+$"):
        check_writable(repo, path)


def test_what_is_no_file_is_not_waited_for(repo: Path) -> None:
    os.mkfifo(repo / "pipe")
    with pytest.raises(ToolError, match="not a regular file"):
        check_readable(repo, "pipe", LIMIT)


def test_what_is_too_large_is_not_read(repo: Path) -> None:
    with pytest.raises(ToolError, match="larger than 2 bytes"):
        check_readable(repo, "src/a.py", 2)


def test_only_directories_of_the_repository_are_listed(repo: Path) -> None:
    assert is_directory(repo, ".")
    assert is_directory(repo, "src")
    assert not is_directory(repo, "src/a.py")
    for path in ("out", "..", ".codebutler"):
        with pytest.raises(ToolError):
            is_directory(repo, path)
    assert relative_path(repo, "") == "."

"""Files into and out of a repository in which somebody hostile writes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from codebutler_worker.media.files import FILES, IMAGES, MAX_SENT_BYTES, forget_files, load_file, save_file
from codebutler_worker.sandbox.destinations import UnsafePathError
from codebutler_worker.store.opening import prepare_state_dir


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = tmp_path / "repo"
    (repo / ".git").mkdir(parents=True)
    (repo / ".git" / "config").write_text("[remote]\n")
    prepare_state_dir(repo)
    (repo / ".codebutler" / "config.json").write_text('{"slack": {}}')
    (tmp_path / "secret").write_text("outside")
    return repo


def test_a_file_is_stored_for_the_owner_only_and_replaced(repo: Path) -> None:
    assert save_file(repo, FILES, "a.txt", b"one") == ".codebutler/files/a.txt"
    save_file(repo, FILES, "a.txt", b"two")
    stored = repo / ".codebutler" / "files" / "a.txt"
    assert stored.read_bytes() == b"two"
    assert stored.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in stored.parent.iterdir()] == ["a.txt"]


def test_a_link_in_its_place_is_replaced_and_not_followed(repo: Path) -> None:
    victim = repo.parent / "secret"
    (repo / ".codebutler" / "files" / "a.txt").symlink_to(victim)
    save_file(repo, FILES, "a.txt", b"new")
    assert victim.read_text() == "outside"
    assert (repo / ".codebutler" / "files" / "a.txt").read_bytes() == b"new"


def test_a_directory_that_is_a_link_is_refused(repo: Path) -> None:
    elsewhere = repo.parent / "elsewhere"
    elsewhere.mkdir()
    (repo / ".codebutler" / "files").rmdir()
    (repo / ".codebutler" / "files").symlink_to(elsewhere)
    with pytest.raises(UnsafePathError):
        save_file(repo, FILES, "a.txt", b"x")
    assert list(elsewhere.iterdir()) == []


def test_a_directory_under_that_name_leaves_nothing_behind(repo: Path) -> None:
    (repo / ".codebutler" / "files" / "a.txt").mkdir()
    with pytest.raises(OSError, match="directory"):
        save_file(repo, FILES, "a.txt", b"x")
    assert [each.name for each in (repo / ".codebutler" / "files").iterdir()] == ["a.txt"]


def test_files_of_the_repository_and_of_the_shared_directories_may_be_sent(repo: Path) -> None:
    (repo / "out").mkdir()
    (repo / "out" / "a.csv").write_text("a")
    save_file(repo, FILES, "b.txt", b"b")
    assert load_file(repo, "out/a.csv") == ("a.csv", b"a")
    assert load_file(repo, "./out/a.csv") == ("a.csv", b"a")
    assert load_file(repo, str(repo / "out" / "a.csv")) == ("a.csv", b"a")
    assert load_file(repo, ".codebutler/files/b.txt") == ("b.txt", b"b")


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "../secret",
        "out/../../secret",
        "/etc/passwd",
        "link",
        "linked/secret",
        "hard",
        "pipe",
        ".git",
        ".git/config",
        ".codebutler/config.json",
        ".codebutler/files/../config.json",
        ".codebutler/files",
        "home/config.json",
        "home/sub/x",
        "large",
        "a\nb",
        "a\0b",
    ],
)
def test_everything_else_is_refused(repo: Path, path: str) -> None:
    (repo / "link").symlink_to(repo.parent / "secret")
    (repo / "linked").symlink_to(repo.parent)
    os.link(repo.parent / "secret", repo / "hard")
    os.mkfifo(repo / "pipe")
    (repo / "home" / "sub").mkdir(parents=True)
    (repo / "home" / "config.json").write_text("tokens")
    (repo / "home" / "sub" / "x").write_text("tokens")
    (repo / "large").write_bytes(b"x" * (MAX_SENT_BYTES + 1))
    with pytest.raises(UnsafePathError):
        load_file(repo, path, (repo / "home",))


def test_what_is_not_there_is_said_so(repo: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_file(repo, "nothing.txt")


def test_private_places_are_told_by_what_they_are_not_by_name(repo: Path) -> None:
    (repo / "state").mkdir()
    (repo / "state" / "x").write_text("tokens")
    other_name = repo.parent / "alias"
    other_name.symlink_to(repo / "state")
    with pytest.raises(UnsafePathError, match="private"):
        load_file(repo, "state/x", (other_name,))


def test_old_files_are_forgotten_and_nothing_else_is_touched(repo: Path) -> None:
    outside = repo / "precious.txt"
    outside.write_text("mine")
    for name in ("old.txt", "new.txt"):
        save_file(repo, FILES, name, b"x")
    save_file(repo, IMAGES, "old.png", b"x")
    files = repo / FILES
    (files / "link").symlink_to(outside)
    (files / "directory").mkdir()
    for path in (files / "old.txt", repo / IMAGES / "old.png", files / "directory", outside):
        os.utime(path, (1000, 1000))
    os.utime(files / "link", (1000, 1000), follow_symlinks=False)
    assert forget_files(repo, 2000) == 2
    assert sorted(path.name for path in files.iterdir()) == ["directory", "link", "new.txt"]
    assert outside.read_text() == "mine"


def test_files_of_a_directory_that_is_a_link_are_not_forgotten(repo: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "old.txt").write_text("mine")
    os.utime(elsewhere / "old.txt", (1000, 1000))
    shutil.rmtree(repo / FILES, ignore_errors=True)
    (repo / FILES).symlink_to(elsewhere)
    assert forget_files(repo, 2000) == 0
    assert (elsewhere / "old.txt").exists()

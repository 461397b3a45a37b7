"""``memory.md`` on a real disk: whole or not at all, and never through a link."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import pytest

from codebutler.config.memory import ApplyResult, FactChange, MemoryFile, apply_changes, facts_of
from codebutler.domain.errors import CodeButlerError


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / ".codebutler").mkdir()
    return tmp_path


def test_it_is_read_changed_and_read_again(repo: Path) -> None:
    file = MemoryFile(repo)
    assert file.read() == ""
    assert file.change(partial(apply_changes, [FactChange(new="a"), FactChange(new="b")])).applied
    assert file.read() == "- a\n- b\n"
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.change(partial(apply_changes, [FactChange("a")])).text == "- b\n"
    assert [path.name for path in file.path.parent.iterdir()] == ["memory.md"]


def test_what_changes_nothing_writes_nothing(repo: Path) -> None:
    file = MemoryFile(repo)
    file.change(partial(apply_changes, [FactChange(new="a")]))
    before = file.path.stat().st_ino
    file.change(partial(apply_changes, [FactChange(new="a")]))
    assert file.path.stat().st_ino == before


def test_changes_at_once_are_all_kept(repo: Path) -> None:
    file = MemoryFile(repo)
    start = threading.Barrier(8)

    def add(name: str) -> None:
        start.wait()
        for at in range(10):
            file.change(partial(apply_changes, [FactChange(new=f"{name} {at}")]))

    threads = [threading.Thread(target=add, args=(f"fact {number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(facts_of(file.read())) == 80


@pytest.mark.parametrize("plant", ["link", "directory", "pipe", "huge", "state is a link"])
def test_what_was_planted_is_refused_and_stays(repo: Path, tmp_path: Path, plant: str) -> None:
    target = tmp_path / "secret"
    target.write_text("- secret\n")
    file = MemoryFile(repo)
    match plant:
        case "link":
            file.path.symlink_to(target)
        case "directory":
            file.path.mkdir()
        case "pipe":
            os.mkfifo(file.path)
        case "huge":
            file.path.write_bytes(b"x" * 2**20)
        case _:
            elsewhere = tmp_path / "elsewhere"
            (repo / ".codebutler").rename(elsewhere)
            (repo / ".codebutler").symlink_to(elsewhere)
    with pytest.raises(CodeButlerError):
        file.read()
    with pytest.raises(CodeButlerError):
        file.change(partial(apply_changes, [FactChange(new="a")]))
    assert target.read_text() == "- secret\n"


def test_a_change_that_fails_leaves_the_file(repo: Path) -> None:
    file = MemoryFile(repo)
    file.change(partial(apply_changes, [FactChange(new="a")]))

    def broken(text: str) -> ApplyResult:
        raise CodeButlerError("no")

    with pytest.raises(CodeButlerError):
        file.change(broken)
    assert file.read() == "- a\n"
    assert file.change(partial(apply_changes, [FactChange(new="b")])).applied  # the lock was let go


def test_a_repository_that_is_gone_is_one_line(tmp_path: Path) -> None:
    assert MemoryFile(tmp_path / "gone").read() == ""
    with pytest.raises(CodeButlerError, match="add-repo"):
        MemoryFile(tmp_path / "gone").change(partial(apply_changes, [FactChange(new="a")]))


def test_what_is_not_utf_8_stays_as_it_is(repo: Path) -> None:
    file = MemoryFile(repo)
    file.path.write_bytes(b"- Gr\xfc\xdfe\n")
    assert file.read() == "- Gr\ufffd\ufffde\n"
    with pytest.raises(CodeButlerError, match="not UTF-8"):
        file.change(lambda text: apply_changes([FactChange(new="more")], text))
    assert file.path.read_bytes() == b"- Gr\xfc\xdfe\n"

from __future__ import annotations

import resource
import stat
import threading
from functools import partial
from pathlib import Path

import pytest

from codebutler.config.paths import Home, RepoPaths
from codebutler.config.registry import Registry, RepoEntries, RepoEntry, add
from codebutler.domain.errors import CodeButlerError, ConfigError, RegistryError
from codebutler.platform.files import PrivateDir


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_home_is_named_by_the_environment_or_the_user(tmp_path: Path) -> None:
    assert Home.from_env({"CODEBUTLER_HOME": str(tmp_path)}).root == tmp_path
    assert Home.from_env({"HOME": str(tmp_path)}).root == tmp_path / ".codebutler"
    assert Home.from_env({"HOME": str(tmp_path), "CODEBUTLER_HOME": " "}).root == tmp_path / ".codebutler"


def test_the_home_is_private_whatever_it_was(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "home")
    home.logs.mkdir(parents=True, mode=0o755)
    home.root.chmod(0o755)
    home.config.write_text("{}")
    home.config.chmod(0o644)

    home.ensure()

    assert mode(home.root) == mode(home.logs) == 0o700
    assert mode(home.config) == 0o600


def test_a_home_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(CodeButlerError, match="cannot write"):
        Home(tmp_path / "file" / "home").ensure()


def test_a_home_too_deep_for_a_socket_says_what_to_do(tmp_path: Path) -> None:
    home = Home(tmp_path / ("x" * 100))

    with pytest.raises(ConfigError, match="set CODEBUTLER_HOME to a shorter one"):
        home.ensure()

    assert not home.root.exists()


def test_a_written_file_is_private_and_whole(tmp_path: Path) -> None:
    with PrivateDir(tmp_path / "d", create=True) as directory:
        directory.write("f", b"old")
        directory.write("f", b"new")
        assert directory.read("f") == b"new"
        assert directory.read("absent") is None

    assert mode(tmp_path / "d") == 0o700
    assert mode(tmp_path / "d" / "f") == 0o600
    assert [p.name for p in (tmp_path / "d").iterdir()] == ["f"]


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    with PrivateDir(tmp_path) as directory:
        directory.write("f", b"old")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))  # as a full disk; Python ignores SIGXFSZ
        try:
            with pytest.raises(CodeButlerError, match=f"cannot write {tmp_path}/f"):
                directory.write("f", b"x" * 100)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert directory.read("f") == b"old"

    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_link_in_place_of_the_private_directory_is_refused(tmp_path: Path) -> None:
    repo, elsewhere = tmp_path / "repo", tmp_path / "elsewhere"
    repo.mkdir()
    elsewhere.mkdir()
    (repo / ".codebutler").symlink_to(elsewhere)

    with pytest.raises(ConfigError, match="must be a real directory"), RepoPaths(repo).open(create=True):
        pass

    assert list(elsewhere.iterdir()) == []


def test_a_link_in_place_of_a_file_is_replaced_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").symlink_to(victim)

    with PrivateDir(tmp_path / "d") as directory:
        directory.write("f", b"new")

    assert victim.read_text() == "mine"
    assert (tmp_path / "d" / "f").read_text() == "new"


def test_the_registry_keeps_what_was_added(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert Registry(home).load() == ()

    entry = RepoEntry(name="a", path="/a", digest="d", channel_id="C1")
    Registry(home).update(partial(add, entry=entry))

    assert Registry(home).load() == (entry,)
    assert mode(home.registry) == 0o600
    with pytest.raises(RegistryError):
        Registry(home).update(partial(add, entry=entry))
    assert Registry(home).load() == (entry,)


def test_changes_made_at_once_are_all_kept(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").ensure()
    names = [f"r{number}" for number in range(20)]

    def register(name: str) -> None:
        Registry(home).update(partial(add, entry=RepoEntry(name=name, path=f"/{name}")))

    threads = [threading.Thread(target=register, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    entries: RepoEntries = Registry(home).load()
    assert sorted(entry.name for entry in entries) == sorted(names)

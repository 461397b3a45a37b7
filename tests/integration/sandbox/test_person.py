"""As whom root starts a program: where his home is, and what is made there for him."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox import person
from codebutler_worker.sandbox.destinations import make_directories
from codebutler_worker.sandbox.person import as_owner, ensure_home, home_of_agents

# Of nobody in passwd(5).
OWNER = 54321


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (repo := tmp_path / "repo").mkdir()
    os.chown(repo, OWNER, OWNER)
    return repo


def test_an_ordinary_user_has_his_own_home_and_starts_what_he_likes(tmp_path: Path) -> None:
    assert home_of_agents(tmp_path, Path("/home/ann"), uid=1000) == Path("/home/ann")
    assert as_owner(tmp_path, Path("/bin/true"), uid=1000) == ()
    made = tmp_path / "home" / ".claude" / "projects"
    (tmp_path / "home").mkdir()
    make_directories(tmp_path / "home", made)
    make_directories(tmp_path / "home", made)
    assert made.is_dir()


@pytest.mark.root
def test_roots_home_counts_only_if_it_is_the_owners(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(person, "HOMES", tmp_path / "homes")
    (ours := tmp_path / "ours").mkdir()
    (other := tmp_path / "other").mkdir()
    os.chown(ours, OWNER, OWNER)
    assert home_of_agents(repo, ours) == ours
    found = home_of_agents(repo, other)
    assert found == tmp_path / "homes" / str(OWNER)
    ensure_home(found, repo)
    ensure_home(found, repo)
    status = found.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (OWNER, OWNER, 0o700)
    ensure_home(other, repo)
    assert other.stat().st_uid == 0


@pytest.mark.root
def test_what_is_missing_is_made_for_whom_the_home_belongs_and_through_no_link(tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir()
    os.chown(home, OWNER, OWNER)
    make_directories(home, home / ".agent" / "sessions" / "one")
    for made in (home / ".agent", home / ".agent" / "sessions", home / ".agent" / "sessions" / "one"):
        assert (made.stat().st_uid, made.stat().st_gid, made.stat().st_mode & 0o777) == (OWNER, OWNER, 0o700)
    (outside := tmp_path / "outside").mkdir()
    (home / ".other").symlink_to(outside)
    with pytest.raises(SandboxUnavailableError, match="cannot be created") as caught:
        make_directories(home, home / ".other" / "sessions")
    assert "\n" not in str(caught.value)
    assert (list(outside.iterdir()), outside.stat().st_uid) == ([], 0)


@pytest.mark.root
def test_a_program_that_the_owner_cannot_reach_is_refused_in_one_line(repo: Path, tmp_path: Path) -> None:
    (away := tmp_path / "away").mkdir(mode=0o700)
    (program := away / "claude").touch(mode=0o755)
    with pytest.raises(
        SandboxUnavailableError, match=f"agents run as user {OWNER}, who cannot reach {program}"
    ):
        as_owner(repo, program)
    away.chmod(0o711)
    assert as_owner(repo, program)[-1] == "--"
    with pytest.raises(SandboxUnavailableError, match="gone: No such file or directory"):
        as_owner(tmp_path / "gone", program)

"""Whose hand a jobs.yaml is from, with real git: what somebody committed does not count by itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from codebutler.config.paths import Home
from codebutler.config.registry import MAX_FOREIGN_DIGESTS, JobsProvenance, Registry, RepoEntry, add
from codebutler.config.trust import digest
from codebutler.domain.errors import CodeButlerError

JOBS = b"jobs: [{name: evil, cron: '* * * * *', command: touch owned}]\n"
REASON = "came with the repository: read it, then run `codebutler trust shop`"


@pytest.fixture
def registry(tmp_path: Path, git_repo: Path) -> Registry:
    found = Registry(Home(tmp_path / "home").ensure())
    found.update(lambda entries: add(entries, RepoEntry(name="shop", path=str(git_repo))))
    return found


def written(repo: Path, name: str = "jobs.yaml") -> None:
    (repo / ".codebutler").mkdir(exist_ok=True)
    (repo / ".codebutler" / ".gitignore").write_text("*\n")
    (repo / ".codebutler" / name).write_bytes(JOBS)


def git(repo: Path, *args: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *identity, *args], cwd=repo, check=True, capture_output=True)


def objection(registry: Registry, data: bytes = JOBS) -> str:
    """As a supervisor that has just begun would say."""
    (entry,) = registry.load()
    return JobsProvenance(registry).objection(entry, data)


def test_a_file_of_ones_own_counts(registry: Registry, git_repo: Path) -> None:
    written(git_repo)
    assert objection(registry) == ""
    assert registry.load()[0].foreign_jobs == ()


@pytest.mark.parametrize("name", ["jobs.yaml", "JOBS.yaml"])
def test_one_that_was_committed_does_not(registry: Registry, git_repo: Path, name: str) -> None:
    written(git_repo, name)
    git(git_repo, "add", "-f", f".codebutler/{name}")
    git(git_repo, "commit", "-qm", "Bring jobs")
    assert objection(registry) == REASON


def test_it_does_not_even_when_an_agent_has_taken_it_out_of_the_index(
    registry: Registry, git_repo: Path
) -> None:
    written(git_repo)
    git(git_repo, "add", "-f", ".codebutler/jobs.yaml")
    assert objection(registry) == REASON
    git(git_repo, "rm", "-q", "--cached", ".codebutler/jobs.yaml")
    assert objection(registry) == REASON


def test_nor_when_it_came_in_a_submodule(registry: Registry, git_repo: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "jobs.yaml").write_bytes(JOBS)
    git(inner, "init", "-q")
    git(inner, "add", "jobs.yaml")
    git(inner, "commit", "-qm", "Jobs")
    git(git_repo, "submodule", "--quiet", "add", str(inner), ".codebutler")
    assert (git_repo / ".codebutler" / "jobs.yaml").read_bytes() == JOBS
    assert objection(registry) == REASON


def test_once_it_is_trusted_it_counts_until_it_changes(registry: Registry, git_repo: Path) -> None:
    written(git_repo)
    git(git_repo, "add", "-f", ".codebutler/jobs.yaml")
    assert objection(registry) == REASON
    (entry,) = registry.load()
    trusted = RepoEntry(
        name="shop", path=entry.path, jobs_digest=digest(JOBS), foreign_jobs=entry.foreign_jobs
    )
    registry.update(lambda _: (trusted,))
    assert objection(registry) == ""
    assert objection(registry, JOBS + b"#") == REASON


def test_git_is_asked_once_for_each_content(registry: Registry) -> None:
    asked = []

    def tracked(repo: Path, path: str) -> bool:
        asked.append(path)
        return len(asked) > 1

    provenance = JobsProvenance(registry, tracked)
    for data in (b"one", b"one", b"two", b"two"):
        provenance.objection(registry.load()[0], data)
    assert asked == [".codebutler/jobs.yaml"] * 2


def test_what_git_cannot_tell_is_foreign(registry: Registry, git_repo: Path) -> None:
    written(git_repo)
    (git_repo / ".git" / "index").write_bytes(b"broken")
    assert objection(registry) == REASON


def test_where_there_is_no_git_nothing_counts(
    registry: Registry, git_repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(git_repo)
    monkeypatch.setenv("PATH", str(git_repo))
    with pytest.raises(CodeButlerError, match="git is not installed"):
        objection(registry)


def test_the_registry_does_not_grow_without_end(registry: Registry) -> None:
    provenance = JobsProvenance(registry, lambda _repo, _path: True)
    for number in range(MAX_FOREIGN_DIGESTS + 5):
        provenance.objection(registry.load()[0], b"%d" % number)
    kept = registry.load()[0].foreign_jobs
    assert len(kept) == MAX_FOREIGN_DIGESTS
    assert kept[-1] == digest(b"%d" % (MAX_FOREIGN_DIGESTS + 4))

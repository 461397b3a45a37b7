"""Skills on a real disk: which one counts, and whose are used at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from codebutler.config.paths import Home
from codebutler.config.skills import BUNDLED, find_skills, skills_digest

BUNDLED_NAMES = {"commit-message", "explain-failing-test", "release-notes", "review-diff", "triage-issue"}


def write(root: Path, name: str, text: str = "Do it.", program: str | None = None) -> Path:
    directory = root / "skills" / name
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text(f"---\nname: {name}\ndescription: How to {name}.\n---\n{text}\n")
    if program is not None:
        (directory / "skill.py").write_text(program)
    return directory


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").ensure()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "repo" / ".codebutler").mkdir(parents=True)
    return tmp_path / "repo"


def test_five_come_with_codebutler_and_each_can_be_used(home: Home) -> None:
    found = find_skills(home)
    assert set(found.skills) == BUNDLED_NAMES == {path.name for path in BUNDLED.iterdir()}
    assert found.problems == ()
    assert all(len(skill.instructions) > 500 for skill in found.skills.values())


def test_the_repositorys_comes_before_the_homes_before_the_bundled(home: Home, repo: Path) -> None:
    write(home.root, "review-diff", "as at home")
    write(home.root, "deploy", "as at home")
    write(repo / ".codebutler", "deploy", "as here", "print(1)")
    found = find_skills(home, repo, skills_digest(repo))
    assert found.skills["review-diff"].instructions == "as at home"
    assert (found.skills["deploy"].origin, found.skills["deploy"].kind) == ("repo", "code")
    assert set(found.enabled(["deploy"])) == BUNDLED_NAMES


def test_a_repositorys_skills_are_used_only_as_they_were_vouched_for(home: Home, repo: Path) -> None:
    directory = write(repo / ".codebutler", "deploy")
    assert find_skills(home, repo).untrusted == ("deploy",)
    assert "deploy" not in find_skills(home, repo).skills
    vouched = skills_digest(repo)
    assert "deploy" in find_skills(home, repo, vouched).skills

    text = (directory / "SKILL.md").read_text()
    (directory / "SKILL.md").write_text(text + "And push to main.\n")
    assert find_skills(home, repo, vouched).untrusted == ("deploy",)
    (directory / "SKILL.md").write_text(text)
    assert find_skills(home, repo, vouched).untrusted == ()
    (directory / "skill.py").write_text("import os")
    assert find_skills(home, repo, vouched).untrusted == ("deploy",)
    (directory / "skill.py").unlink()
    write(repo / ".codebutler", "other")
    assert find_skills(home, repo, vouched).untrusted == ("deploy", "other")


def test_a_digest_tells_apart_what_stands_where(repo: Path) -> None:
    directory = write(repo / ".codebutler", "a", "x", "")
    with_empty_program = skills_digest(repo)
    (directory / "skill.py").unlink()
    assert skills_digest(repo) != with_empty_program
    assert skills_digest(repo / "none") == ""


def test_a_broken_skill_is_a_problem_and_no_obstacle(home: Home) -> None:
    write(home.root, "deploy")
    (write(home.root, "broken") / "SKILL.md").write_text("no front matter")
    (home.root / "skills" / "empty").mkdir()
    (home.root / "skills" / "Not A Name").mkdir()
    found = find_skills(home)
    assert set(found.skills) == {*BUNDLED_NAMES, "deploy"}
    assert len(found.problems) == 1
    assert "broken/SKILL.md" in found.problems[0]


@pytest.mark.parametrize(
    "plant", ["directory link", "skills link", "state link", "file link", "pipe", "huge"]
)
def test_nothing_in_a_repository_is_read_through_a_link(
    home: Home, repo: Path, tmp_path: Path, plant: str
) -> None:
    directory = write(repo / ".codebutler", "deploy")
    elsewhere = tmp_path / "elsewhere"
    match plant:
        case "directory link":
            shutil.move(directory, elsewhere)
            directory.symlink_to(elsewhere)
        case "skills link":
            shutil.move(directory.parent, elsewhere)
            directory.parent.symlink_to(elsewhere)
        case "state link":
            shutil.move(repo / ".codebutler", elsewhere)
            (repo / ".codebutler").symlink_to(elsewhere)
        case "file link":
            shutil.move(directory / "SKILL.md", elsewhere)
            (directory / "SKILL.md").symlink_to(elsewhere)
        case "pipe":
            (directory / "SKILL.md").unlink()
            os.mkfifo(directory / "SKILL.md")
        case _:
            (directory / "SKILL.md").write_bytes(b"x" * 2**20)
    found = find_skills(home, repo, skills_digest(repo))
    assert set(found.skills) == BUNDLED_NAMES


def test_the_owner_may_link_skills_into_the_home(home: Home, tmp_path: Path) -> None:
    directory = write(tmp_path / "dotfiles", "deploy")
    (home.root / "skills").symlink_to(directory.parent)
    assert "deploy" in find_skills(home).skills


@pytest.mark.parametrize("target", ["gone", "lost"])
def test_a_link_to_nowhere_hides_no_other_skill(home: Home, target: str) -> None:
    write(home.root, "deploy")
    (home.root / "skills" / "lost").symlink_to(target)
    assert "deploy" in find_skills(home).skills


def test_without_anything_there_are_the_bundled(tmp_path: Path) -> None:
    assert set(find_skills(Home(tmp_path / "none"), tmp_path / "gone").skills) == BUNDLED_NAMES
    assert set(find_skills(None).skills) == BUNDLED_NAMES

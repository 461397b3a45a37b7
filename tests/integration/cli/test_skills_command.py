from __future__ import annotations

import json
from pathlib import Path

import pytest

from codebutler.config.registry import Registry, RepoEntry
from tests.integration.cli.conftest import Cli


@pytest.fixture
def repo(cli: Cli, tmp_path: Path) -> Path:
    directory = tmp_path / "repo"
    (directory / ".codebutler").mkdir(parents=True)
    cli.home.ensure()
    Registry(cli.home).update(lambda _: (RepoEntry(name="repo", path=str(directory)),))
    return directory


def names(cli: Cli, *arguments: str) -> dict[str, str]:
    """Each listed skill and where it is from."""
    rows = json.loads(cli("skills", "list", "--json", *arguments).out)
    return {row["name"]: row["origin"] for row in rows}


def test_the_bundled_ones_are_listed_and_shown(cli: Cli) -> None:
    assert names(cli)["review-diff"] == "bundled"
    assert "review-diff" in cli("skills", "list").out
    shown = cli("skills", "info", "review-diff").out
    assert "from bundled, prompt, on" in shown
    assert "git diff HEAD" in shown
    cli.fails("skills", "info", "nothing", code=1, said="there is no skill nothing")


def test_a_new_one_is_made_listed_and_not_overwritten(cli: Cli) -> None:
    assert cli("skills", "create", "deploy", "--description", "How we deploy.").code == 0
    assert names(cli)["deploy"] == "home"
    cli.fails("skills", "create", "deploy", code=1, said="exists already")
    assert cli("skills", "create", "../deploy").code == 2
    assert cli("skills", "create", "count", "--code").code == 0
    assert json.loads(cli("skills", "info", "count", "--json").out)["kind"] == "code"


def test_off_is_off_until_it_is_on(cli: Cli) -> None:
    cli("skills", "disable", "review-diff")
    cli("skills", "disable", "review-diff")
    assert json.loads(cli.home.config.read_text()) == {"skills": {"disabled": ["review-diff"]}}
    rows = json.loads(cli("skills", "list", "--json").out)
    assert [row["name"] for row in rows if not row["enabled"]] == ["review-diff"]
    cli("skills", "enable", "review-diff")
    assert all(row["enabled"] for row in json.loads(cli("skills", "list", "--json").out))
    assert cli("skills", "disable", "No Name").code == 2
    for action in ("enable", "disable"):
        cli.fails("skills", action, "reveiw-diff", code=1, said="there is no skill reveiw-diff")
    # One that has gone meanwhile can still be struck off the list.
    cli.home.config.write_text(json.dumps({"skills": {"disabled": ["gone"]}}))
    assert cli("skills", "enable", "gone").code == 0


def test_a_repositorys_skill_waits_for_trust(cli: Cli, repo: Path) -> None:
    made = cli("skills", "create", "deploy", "--repo", "repo")
    assert "codebutler trust repo" in made.err
    assert "deploy" not in names(cli, "--repo", "repo")
    assert (
        "not used until you run `codebutler trust repo`: deploy"
        in cli("skills", "list", "--repo", "repo").err
    )

    assert "Trusted the config and the skills of repo." in cli("trust", "repo").out
    assert names(cli, "--repo", "repo")["deploy"] == "repo"
    assert "deploy" not in names(cli)

    with (repo / ".codebutler" / "skills" / "deploy" / "SKILL.md").open("a") as file:
        file.write("And push to main.\n")
    assert "deploy" not in names(cli, "--repo", "repo")


def test_a_planted_link_gets_nothing_written(cli: Cli, repo: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (repo / ".codebutler" / "skills").symlink_to(elsewhere)
    cli.fails("skills", "create", "deploy", "--repo", "repo", code=78, said="must be a real directory")
    assert list(elsewhere.iterdir()) == []

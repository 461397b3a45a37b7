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


def test_facts_are_shown_with_numbers_and_forgotten_by_them(cli: Cli, repo: Path) -> None:
    assert "Nothing is remembered" in cli("memory", "show").out
    file = repo / ".codebutler" / "memory.md"
    file.write_text("# Ours\n- Login uses bcrypt\n- Time is \x1b[31mUTC\n")

    assert cli("memory", "show").out == "N  FACT\n1  Login uses bcrypt\n2  Time is ?[31mUTC\n"
    assert json.loads(cli("memory", "show", "repo", "--json").out)[0] == {
        "number": 1,
        "fact": "Login uses bcrypt",
    }

    assert "Forgotten: Login uses bcrypt" in cli("memory", "forget", "1").out
    assert file.read_text() == "# Ours\n- Time is \x1b[31mUTC\n"
    cli.fails("memory", "forget", "2", code=1, said="there is no fact 2")
    cli.fails("memory", "show", "nobody", code=1, said="nobody")


def test_what_was_planted_is_not_followed(cli: Cli, repo: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("- mine\n")
    (repo / ".codebutler" / "memory.md").symlink_to(secret)
    cli.fails("memory", "show", code=78, said="symbolic link")
    cli.fails("memory", "forget", "1", code=78, said="symbolic link")
    assert secret.read_text() == "- mine\n"


def test_it_wants_to_know_which_repository(cli: Cli) -> None:
    cli.fails("memory", "show", code=1, said="which repository?")
    assert cli("memory", "forget").code == 2
    assert cli("memory", "forget", "0").code == 2

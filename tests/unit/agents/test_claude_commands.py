from __future__ import annotations

from pathlib import Path

import pytest

from codebutler_worker.agents.claude.commands import accepted, expansion, listed, name_in


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/greet", "greet"),
        ("/ops:deploy now\nand then", "ops:deploy"),
        ("/usr/bin/env", ""),
        ("/../secret", ""),
        ("/", ""),
        ("//x", ""),
        (" /greet", ""),
        ("say /greet", ""),
    ],
)
def test_a_message_may_be_a_command(text: str, name: str) -> None:
    assert name_in(text) == name


def test_only_what_changes_nothing_about_the_cli_is_accepted() -> None:
    offer = {
        "commands": [
            {"name": "greet", "description": "greets (user)"},
            {"name": "deploy", "description": "deploys (project)"},
            {"name": "login", "description": "mine (user)"},
            {"name": "sly", "description": "says so (user)", "builtin": True},
            {"name": "unknown", "description": "of an older version"},
            {"name": "code-review", "description": "d", "aliases": ["review"], "builtin": True},
            {"name": "config", "description": "d", "aliases": ["settings"], "builtin": True},
        ]
    }
    assert accepted(offer) == {"greet", "deploy", "code-review", "review"}


@pytest.mark.parametrize("offer", [None, [], {"commands": "x"}, {"commands": [{"name": 1}]}, {}])
def test_without_a_list_nothing_is(offer: object) -> None:
    assert accepted(offer) == frozenset()


def test_a_repositorys_command_is_read_from_its_own_files_only(tmp_path: Path) -> None:
    repo, secret = tmp_path / "repo", tmp_path / "secret.md"
    secret.write_text("secret")
    commands = repo / ".claude" / "commands"
    commands.mkdir(parents=True)
    (commands / "sly.md").symlink_to(secret)
    (commands / "plain.md").write_text("Do it.")
    assert expansion(repo, "/sly") == ""
    assert expansion(repo, "/none") == ""
    assert expansion(repo, "/plain") == "Do it."
    assert expansion(repo, "/plain with care") == "Do it.\n\nwith care"


@pytest.mark.parametrize(
    "front", ["", "---\nmodel: m\n---\n", "\ufeff---\r\nmodel: m\r\n---\r\n", "---\n---\n"]
)
def test_only_the_front_matter_is_left_out_of_a_command(tmp_path: Path, front: str) -> None:
    words = "First.\n\n---\nSecond.\n\n---\nThird."
    path = tmp_path / ".claude" / "commands" / "steps.md"
    path.parent.mkdir(parents=True)
    path.write_bytes((front + words).encode())
    assert expansion(tmp_path, "/steps") == words


def test_commands_and_skills_are_listed_by_the_names_that_people_write(tmp_path: Path) -> None:
    for name in (
        "commands/greet.md",
        "commands/ops/deploy.md",
        "skills/shine/SKILL.md",
        "commands/config.md",
    ):
        path = tmp_path / ".claude" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert listed(tmp_path, tmp_path / "none") == ("greet", "ops:deploy", "shine")


@pytest.mark.parametrize("link", [".claude", ".claude/commands"])
def test_a_repositorys_link_is_not_followed(tmp_path: Path, link: str) -> None:
    elsewhere, repo = tmp_path / "elsewhere", tmp_path / "repo"
    for path in (elsewhere / "private.md", elsewhere / "commands" / "private.md"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (repo / link).parent.mkdir(parents=True)
    (repo / link).symlink_to(elsewhere)
    assert listed(tmp_path / "none", repo) == ()
    assert expansion(repo, "/private") == ""

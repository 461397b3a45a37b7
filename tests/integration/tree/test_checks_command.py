"""What checks a repository, by its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler_worker.tree.checks import checks_command


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({}, None),
        ({"Makefile": "all:\n\ttrue\ncheck: all\n\ttrue\ntest:\n\ttrue\n"}, "make check"),
        ({"Makefile": "test :\n\ttrue\n"}, "make test"),
        ({"Makefile": "check := 1\ntest ::= 2\n"}, None),
        ({"makefile": "test:\n", "package.json": '{"scripts": {"test": "jest"}}'}, "make test"),
        ({"package.json": '{"scripts": {"test": "jest"}}'}, "npm test"),
        ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, None),
        ({"package.json": "[1]"}, None),
        ({"package.json": '{"scripts": {"test": 5}}'}, None),
        ({"package.json": "[" * 100_000}, None),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python3 -m pytest"),
        ({"pytest.ini": "", ".venv/bin/python": ""}, ".venv/bin/python -m pytest"),
        ({"tests/conftest.py": ""}, "python3 -m pytest"),
        ({"Cargo.toml": ""}, "cargo test"),
        ({"go.mod": ""}, "go test ./..."),
    ],
)
def test_the_first_of_what_is_there_is_taken(
    tmp_path: Path, files: dict[str, str], command: str | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert checks_command("", tmp_path) == command


def test_the_configured_one_goes_before(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("check:\n")
    assert checks_command(" ./ci.sh ", tmp_path) == "./ci.sh"


def test_no_link_is_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("check:\n")
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "Makefile").symlink_to(outside)
    (repo / "go.mod").symlink_to(outside)
    assert checks_command("", repo) is None

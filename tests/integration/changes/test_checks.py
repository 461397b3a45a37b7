"""What checks a repository, by its files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from codebutler.config.schema import Check, ChecksSection
from codebutler_worker.changes.checking import checks_of, script_of


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
    found = checks_of(ChecksSection(), tmp_path)
    # What nobody has named does not run by itself.
    assert found == ((Check(name=command, command=command, when="ask"),) if command else ())


def test_the_configured_one_goes_before(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("check:\n")
    lint = Check(name="lint", command="ruff check", when="never")
    found = checks_of(ChecksSection(command=" ./ci.sh ", commands=(lint,)), tmp_path)
    assert found == (Check(name="./ci.sh", command="./ci.sh", when="always"), lint)


def test_no_link_is_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("check:\n")
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "Makefile").symlink_to(outside)
    (repo / "go.mod").symlink_to(outside)
    assert checks_of(ChecksSection(), repo) == ()


@pytest.mark.parametrize(
    ("commands", "code", "shown"),
    [
        (["echo one"], 0, "one\n"),
        (["exit 3", "echo 'two' # and more"], 1, "== 0\n== 1\ntwo\n"),
        (["cd / && true", "pwd | grep -qx /"], 1, "== 0\n== 1\n"),
        (["true", "echo $failed"], 0, "== 0\n== 1\n\n"),
    ],
)
def test_several_are_one_script_that_runs_them_all(
    tmp_path: Path, commands: list[str], code: int, shown: str
) -> None:
    checks = [Check(name=str(number), command=command) for number, command in enumerate(commands)]
    ran = subprocess.run(["bash", "-c", script_of(checks)], capture_output=True, cwd=tmp_path, check=False)
    assert (ran.returncode, ran.stdout.decode()) == (code, shown)

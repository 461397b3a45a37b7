"""A program that is not found: not installed, or installed where the supervisor does not look."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.platform.lookup import CLAUDE_CODE, KIMI_CODE, TERMINAL_PATH, look_up, missing_rule
from codebutler_worker.agents.acp.kimi import PACKAGE
from codebutler_worker.agents.claude.backend import find_binary
from codebutler_worker.agents.survey import CLAUDE, KIMI, dotted


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def told(home: Path, binary: str = "claude") -> str:
    return str(CLAUDE_CODE.missing(binary, home))


def test_what_is_installed_is_what_was_tested() -> None:
    assert CLAUDE_CODE.install.endswith(f"@{dotted(CLAUDE.tested)}")
    assert KIMI_CODE.install.endswith(f"{PACKAGE}@{dotted(KIMI.tested)}")


def test_one_that_is_nowhere_is_not_installed(tmp_path: Path) -> None:
    assert told(tmp_path, "cl4ude") == f"Claude Code is not installed: run `{CLAUDE.install}`"
    assert "sudo" not in CLAUDE.install
    assert "--prefix ~/.local" in CLAUDE.install


@pytest.mark.parametrize(
    "place", [".npm-global/bin", ".nvm/versions/node/v24.1.0/bin", ".volta/bin", ".local/bin"]
)
def test_one_where_installers_put_it_is_not_on_the_path(tmp_path: Path, place: str) -> None:
    found = program(tmp_path / place / "cl4ude")
    said = told(tmp_path, "cl4ude")
    assert "not on the supervisor's PATH" in said
    assert said.endswith(f"run `codebutler config set claude.binary {found}`")


def test_what_a_terminal_finds_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = program(tmp_path / "odd" / "mytool")
    assert "mytool is not installed" in str(missing_rule("mytool", tmp_path))
    monkeypatch.setenv(TERMINAL_PATH, f"{found.parent}:relative")
    assert str(found) in str(missing_rule("mytool", tmp_path))


def test_a_path_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    assert "not installed at /opt/none/claude" in told(tmp_path, "/opt/none/claude")
    with pytest.raises(Exception, match="not installed at /opt/none/claude"):
        find_binary("/opt/none/claude", "/usr/bin", tmp_path / "repo", tmp_path)


def test_nothing_that_lies_in_the_repository_is_taken_by_name(tmp_path: Path) -> None:
    planted = program(tmp_path / "repo" / "bin" / "tool")
    assert look_up("tool", f"{planted.parent}:relative/bin", tmp_path / "repo") is None
    assert look_up("sh", "/usr/bin:/bin", tmp_path) in (Path("/usr/bin/sh"), Path("/bin/sh"))
    assert look_up(str(planted), "", tmp_path / "elsewhere") == planted

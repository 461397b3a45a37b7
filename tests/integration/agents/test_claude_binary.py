"""Which Claude Code is started: never one that an agent may have written."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.domain.errors import AgentUnavailableError
from codebutler_worker.agents.claude.backend import find_binary


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_program_on_the_path_is_found(tmp_path: Path) -> None:
    real = program(tmp_path / "real" / "claude")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "claude").symlink_to(real)
    assert find_binary("claude", f"{tmp_path}/bin", tmp_path / "repo", tmp_path) == real


@pytest.mark.parametrize("path", [".", "", "node_modules/.bin", "..:.", ":"])
def test_a_relative_path_finds_nothing(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "claude")
    program(tmp_path / "node_modules" / ".bin" / "claude")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AgentUnavailableError, match="not installed"):
        find_binary("claude", path, tmp_path / "elsewhere", tmp_path)


@pytest.mark.parametrize("binary", ["./claude", "node_modules/.bin/claude"])
def test_a_relative_name_finds_nothing(tmp_path: Path, binary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / binary)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AgentUnavailableError, match="not installed"):
        find_binary(binary, "/usr/bin", tmp_path / "elsewhere", tmp_path)


def test_a_program_in_the_repository_is_refused(tmp_path: Path) -> None:
    planted = program(tmp_path / "repo" / "bin" / "claude")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "claude").symlink_to(planted)
    for path in (planted.parent, tmp_path / "bin"):
        with pytest.raises(AgentUnavailableError, match="is in the repository"):
            find_binary("claude", str(path), tmp_path / "repo", tmp_path)

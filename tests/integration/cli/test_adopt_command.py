"""`codebutler adopt`: the sessions that were begun in a terminal in a repository."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.desk_sessions import CLAUDE_ID, KIMI_ID, claude_session, kimi_session, used_at
from tests.integration.cli.conftest import Cli


@pytest.fixture
def registered(connected: Cli, git_repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    assert connected("add-repo", str(git_repo), "--channel", "C0GENERAL").code == 0
    monkeypatch.setenv("HOME", str(tmp_path / "desk"))
    monkeypatch.chdir(git_repo)
    return connected


def test_it_lists_them_newest_first(registered: Cli, git_repo: Path, tmp_path: Path) -> None:
    home = tmp_path / "desk"
    assert "No Claude Code or Kimi Code session" in registered("adopt").out
    used_at(claude_session(home, git_repo, ("fix\x1b[31m it", "Fixed.")), time.time() - 7_300)
    kimi_session(home, git_repo, ("draw it", "Drawn."))
    (git_repo / "src").mkdir(exist_ok=True)
    said = registered("adopt")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[1].split() == ["1", "kimi", "now", "draw", "it", KIMI_ID]
    assert lines[2].split() == ["2", "claude", "2h", "fix?[31m", "it", CLAUDE_ID]
    assert "codebutler adopt SESSION" in lines[3]
    listed = json.loads(registered("adopt", "--json").out)
    assert [each["id"] for each in listed] == [KIMI_ID, CLAUDE_ID]
    assert listed[1]["first_words"].endswith("it")


def test_what_cannot_be_adopted_says_what_to_do(
    registered: Cli, git_repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered.fails("adopt", CLAUDE_ID, code=1, said="to list them")
    claude_session(tmp_path / "desk", git_repo, ("fix it", "Fixed."))
    registered.fails("adopt", CLAUDE_ID[:8], code=1, said="codebutler supervise")
    registered.fails("adopt", CLAUDE_ID, "--repo", "nosuch", code=1, said="nosuch")
    monkeypatch.chdir(tmp_path)
    registered.fails("adopt", CLAUDE_ID, code=1, said="git")

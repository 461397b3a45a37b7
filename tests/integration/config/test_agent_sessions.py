"""Past sessions of Claude Code and Kimi Code, read from files that agents may have written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from codebutler.config.agent_sessions import (
    PastSession,
    SessionFiles,
    claude_sessions,
    files_of,
    find_session,
    terminal_sessions,
)
from codebutler.domain.errors import CodeButlerError
from tests.desk_sessions import CLAUDE_ID, KIMI_ID, claude_session, kimi_session, used_at

OTHER_ID = "aaaaaaaa-1111-4111-8111-111111111111"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    path = tmp_path / "repo"
    path.mkdir()
    return path


def test_what_was_begun_in_a_terminal_is_listed_newest_first(home: Path, repo: Path) -> None:
    used_at(claude_session(home, repo, ("fix it", "Fixed."), ("and test", "Green.")), 2_000)
    used_at(kimi_session(home, repo, ("draw it", "Drawn.")), 3_000)
    claude_session(home, repo, ("by us", "Yes."), session_id=OTHER_ID, entrypoint="sdk-cli")
    kimi_session(home, repo, ("by us", "Yes."), session_id="session_us", runtime="acp:session_us")
    claude_session(home, repo.parent, ("elsewhere", "Yes."), session_id=OTHER_ID)
    assert terminal_sessions(home, repo) == [
        PastSession("kimi", KIMI_ID, 3_000, ("draw it",), "Drawn.", from_terminal=True),
        PastSession("claude", CLAUDE_ID, 2_000, ("fix it", "and test"), "Green.", from_terminal=True),
    ]


def test_what_claude_code_writes_itself_is_nobodys_question(home: Path, repo: Path) -> None:
    path = claude_session(home, repo, ("fix it", "Fixed."))
    own = [
        {"type": "user", "isMeta": True, "message": {"role": "user", "content": "meta"}},
        {"type": "user", "isSidechain": True, "message": {"role": "user", "content": "of a subagent"}},
        {"type": "user", "isCompactSummary": True, "message": {"role": "user", "content": "summary"}},
        {"type": "user", "message": {"role": "user", "content": "<command-name>/clear</command-name>"}},
        {"type": "user", "message": {"content": [{"type": "tool_result", "content": "x"}]}},
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Bash"}]}},
        {
            "type": "assistant",
            "isSidechain": True,
            "message": {"content": [{"type": "text", "text": "aside"}]},
        },
        {"type": "assistant", "message": None},
    ]
    with path.open("a") as file:
        file.writelines(f"{json.dumps(line, separators=(',', ':'))}\n" for line in own)
        file.write('{"type":"assistant","message":{"content":[{"type":"text","text":"cut')
    found = find_session(home, repo, CLAUDE_ID)
    assert (found.prompts, found.answer) == (("fix it",), "Fixed.")


def test_a_session_is_named_by_the_beginning_of_its_id(home: Path, repo: Path) -> None:
    claude_session(home, repo, ("one", "1"))
    kimi_session(home, repo, ("two", "2"))
    assert find_session(home, repo, CLAUDE_ID[:8]).prompts == ("one",)
    assert find_session(home, repo, "F4C04AE5").prompts == ("two",)
    assert find_session(home, repo, KIMI_ID).prompts == ("two",)
    claude_session(home, repo, ("three", "3"), session_id=f"{CLAUDE_ID[:9]}1111-4111-8111-111111111111")
    with pytest.raises(CodeButlerError, match="give more of the ID"):
        find_session(home, repo, CLAUDE_ID[:8])
    for named in (CLAUDE_ID[:4], "bbbbbbbb", "../../etc/passwd", "", "session_"):
        with pytest.raises(CodeButlerError, match="run `codebutler adopt` there to list them"):
            find_session(home, repo, named)


def test_links_pipes_and_rubbish_are_no_sessions(home: Path, repo: Path, tmp_path: Path) -> None:
    directory = claude_sessions(home / ".claude", repo)
    directory.mkdir(parents=True)
    secret = claude_session(home, tmp_path, ("secret", "s"))
    (directory / f"{CLAUDE_ID}.jsonl").symlink_to(secret)
    os.mkfifo(directory / f"{OTHER_ID}.jsonl")
    (directory / "notes.jsonl").write_text("{}\n")
    deep = kimi_session(home, tmp_path, ("secret", "s")).parents[2]
    linked = SessionFiles("kimi", files_of(home, repo)[1].directory)
    linked.directory.mkdir(parents=True)
    (linked.directory / KIMI_ID).symlink_to(deep)
    rubbish = b'{"type":"turn.prompt","input":7}\n' + b'{"type":"turn.prompt"' + b"[" * 100_000 + b"\n\xff\n"
    rubbish += b'{"type":"turn.prompt","input":[{"type":"text","text":"\xff"}]}\n'
    wire = linked.directory / "session_bad" / "agents" / "main" / "wire.jsonl"
    wire.parent.mkdir(parents=True)
    wire.write_bytes(rubbish)
    assert terminal_sessions(home, repo) == []
    assert linked.read("session_bad") == PastSession(
        "kimi", "session_bad", wire.stat().st_mtime, from_terminal=True
    )


def test_a_path_whose_sessions_claude_code_hides_under_a_hash_has_none(home: Path, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100) / ("y" * 100)
    assert [files.agent for files in files_of(home, long)] == ["kimi"]

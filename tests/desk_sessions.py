"""Sessions as Claude Code and Kimi Code leave them, written by hand: a few lines of what the real ones write."""

from __future__ import annotations

import json
import os
from pathlib import Path

from codebutler.config.agent_sessions import claude_sessions, kimi_sessions

CLAUDE_ID = "35fbdb94-baee-4fcb-a393-f01a17fe63e6"
KIMI_ID = "session_f4c04ae5-5a67-49ad-93b5-167c4e2b0c8c"


def claude_session(
    home: Path, workdir: Path, *said: tuple[str, str], session_id: str = CLAUDE_ID, entrypoint: str = "cli"
) -> Path:
    """A session of Claude Code in which this was asked and answered."""
    lines: list[dict[str, object]] = [{"type": "mode", "mode": "normal", "sessionId": session_id}]
    common = {"entrypoint": entrypoint, "isSidechain": False, "cwd": str(workdir), "sessionId": session_id}
    for asked, answer in said:
        lines.append({"type": "user", "message": {"role": "user", "content": asked}, **common})
        content = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": answer}]
        lines.append({"type": "assistant", "message": {"role": "assistant", "content": content}, **common})
    directory = claude_sessions(home / ".claude", workdir)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{session_id}.jsonl"
    path.write_text(_lines(lines))
    return path


def kimi_session(
    home: Path, workdir: Path, *said: tuple[str, str], session_id: str = KIMI_ID, runtime: str = "local"
) -> Path:
    """A session of Kimi Code in which this was asked and answered."""
    directory = kimi_sessions(home / ".kimi-code", workdir)
    lines: list[dict[str, object]] = [
        {"type": "runtime.set_binding", "workspaceId": directory.name, "runtimeId": runtime}
    ]
    for asked, answer in said:
        words = [{"type": "text", "text": asked}]
        lines.append({"type": "turn.prompt", "input": words, "origin": {"kind": "user"}})
        part = {"type": "content.part", "part": {"type": "text", "text": answer}}
        lines.append({"type": "context.append_loop_event", "event": part})
    main = directory / session_id / "agents" / "main"
    main.mkdir(parents=True)
    (main / "wire.jsonl").write_text(_lines(lines))
    state = {"id": session_id, "cwd": str(workdir), "agents": {"main": {"homedir": str(main)}}}
    (directory / session_id / "state.json").write_text(json.dumps(state))
    return main / "wire.jsonl"


def opened_by(home: Path, session_id: str, pid: int) -> None:
    """What Claude Code notes while it has a session open in a terminal."""
    notes = home / ".claude" / "sessions"
    notes.mkdir(parents=True, exist_ok=True)
    note = {"pid": pid, "sessionId": session_id, "kind": "interactive"}
    (notes / f"{pid}.json").write_text(json.dumps(note))


def used_at(path: Path, at_s: float) -> None:
    """Give it another time of its last change."""
    os.utime(path, (at_s, at_s))


def _lines(lines: list[dict[str, object]]) -> str:
    # As they write it: no spaces.
    return "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines)

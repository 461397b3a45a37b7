"""`codebutler allow` and `deny` while the supervisor runs."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.house import house
from tests.e2e.test_matrix import rehearsal


async def test_who_is_denied_is_refused_at_once_and_allowed_again(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        said = await built.run("deny", "you")
        assert "Denied: you (UYOU0000000)" in said
        assert "The list is now empty" in said
        ts = await built.say(channel, "list the files")
        await built.answer(channel, ts, "not authorized")
        assert "Allowed: you (UYOU0000000)" in await built.run("allow", "you@workspace.example")
        ts = await built.say(channel, "list the files")
        assert await built.outcome(channel, ts) == "white_check_mark"

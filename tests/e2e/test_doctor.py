"""`codebutler doctor` in a whole house, with a supervisor at work and the real agents answering."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.e2e.house import house
from tests.e2e.test_matrix import claude, model_env
from tests.modelserver.obedient import ObedientServer


@pytest.mark.timeout(400)
async def test_in_a_house_that_is_well_nothing_fails_and_each_agent_answers(
    tmp_path: Path, git_repo: Path
) -> None:
    with (git_repo / ".git" / "config").open("a") as config:
        config.write("[user]\n\tname = Ann\n\temail = ann@example.org\n")
    async with ObedientServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        await claude(built, git_repo)
        told = json.loads(await built.run("doctor", "--live", "--json", deadline_s=300))
        found = {(each["area"], each["subject"]): each for each in told["findings"]}
        assert told["ok"], told
        as_whom = found["sandbox", "user"]["text"]
        assert ("agents become the repository's owner (user 1000)" in as_whom) is (os.geteuid() == 0)
        assert {each["level"] for each in found.values()} == {"ok"}, told
        assert found["sandbox", "commits"]["text"] == "commits are made as Ann <ann@example.org>"
        assert found["sandbox", "bwrap"]["level"] == "ok"
        assert found["agents", "claude (default)"]["text"].startswith("2.")
        assert found["live", "claude"]["text"].startswith("answered in")
        assert found["live", "rehearsal"]["text"].startswith("answered in")
        assert "running (pid" in found["supervisor", "process"]["text"]
        assert found["slack", "clock"]["level"] == "ok"
        assert "not-a-real-key" not in json.dumps(told)
        claude_row = next(row for row in told["agents"] if row["agent"] == "claude")
        assert [cell["state"] for cell in claude_row["cells"]] == ["yes"] * 10, claude_row
        kept = built.home / "agents.json"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert json.loads(kept.read_text())["agents"] == told["agents"]
        assert built.workspace.workspace.bot.token not in json.dumps(told)

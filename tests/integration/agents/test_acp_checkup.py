"""What `codebutler doctor --live` finds out about Kimi Code and about agents of the configuration."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from codebutler.config.schema import CommandRule, Config, KimiSection, RepoSettings, SandboxSection
from codebutler_worker.checkup import Checkup, look
from tests.modelserver.obedient import ObedientServer
from tests.ordinary import give_logins_away
from tests.programs import KIMI_VERSION, path_with_node, require

ACP_AGENT = Path(__file__).parents[2] / "acpagent" / "agent.py"
KEY = "sk-not-a-real-key-0123456789"


@pytest.mark.timeout(400)
async def test_each_answers_once_or_says_what_to_do(tmp_path: Path) -> None:
    binary, python = str(require("kimi")), "/usr/bin/python3"
    (tmp_path / ".other").mkdir()
    script = str(shutil.copy(ACP_AGENT, tmp_path / ".other"))
    rules = [
        CommandRule(
            prefix=name,
            binary=python,
            args=(script, temper),
            mode="acp",
            description=name,
            home_paths=(".other",),
        )
        for name, temper in (("other", "plain"), ("locked", "locked"))
    ]
    give_logins_away(tmp_path)
    async with ObedientServer() as model:
        config = Config(
            kimi=KimiSection(binary=binary, api_key=KEY, base_url=f"{model.url}/v1"),
            sandbox=SandboxSection(mode="bwrap"),
            commands=tuple(rules),
        )
        env = {"PATH": path_with_node()}
        repo = RepoSettings(name="r", path="", channel_id="", config=config, agent_env=env)
        checkup = Checkup(group=(repo,), state=str(tmp_path), live=True)
        lines = [line.finding async for line in look(checkup, tmp_path)]
        found = {(each.area, each.subject): each for each in lines if each is not None}
    assert found["agents", "kimi"].text == KIMI_VERSION
    assert found["live", "kimi"].text.startswith("answered in")
    assert found["live", "other"].text.startswith("answered in")
    assert found["live", "locked"].level == "FAIL"
    assert "log in by running `python3" in found["live", "locked"].text
    assert set(model.keys) == {KEY}
    assert KEY not in str(found)

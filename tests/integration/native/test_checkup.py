"""What `codebutler doctor --live` finds out about the native agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.config.schema import AgentSection, Config, NativeSection, Price, RepoSettings, SandboxSection
from codebutler_worker.checkup import Checkup, look
from tests.modelserver.obedient import ObedientCompletions
from tests.modelserver.server import Reply


@pytest.mark.parametrize(("status", "level"), [(200, "ok"), (401, "FAIL")])
async def test_the_agent_that_is_set_up_answers_once(tmp_path: Path, status: int, level: str) -> None:
    async with ObedientCompletions() as model:
        model.play(Reply("READY", status=status, error="refused"))
        config = Config(
            agent=AgentSection(default="native"),
            native=NativeSection(
                base_url=model.base_url,
                api_key="sk-not-real",
                model="m",
                prices={"m": Price(input=1, output=1)},
            ),
            sandbox=SandboxSection(mode="none", readable=("/nowhere/tools",)),
        )
        checkup = Checkup(
            group=(RepoSettings(name="r", path="", channel_id="", config=config),),
            state=str(tmp_path),
            live=True,
        )
        lines = [line.finding async for line in look(checkup, tmp_path)]
        found = {(each.area, each.subject): each for each in lines if each is not None}
    assert found["agents", "agent (default)"].level == "ok"
    assert found["live", "native"].level == level
    assert found["memory", "m"].level == "ok"
    assert found["sandbox", "readable"].level == "warn"
    assert "/nowhere/tools" in found["sandbox", "readable"].text
    assert "sk-not-real" not in str(found)
    assert set(model.keys) == {"sk-not-real"}

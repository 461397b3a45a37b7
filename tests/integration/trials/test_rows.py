"""The rows of `codebutler doctor --live`: the real programs in their real sandbox, at a model that does what it is
told."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from codebutler.config.schema import (
    AgentSection,
    CommandRule,
    Config,
    KimiSection,
    NativeSection,
    Price,
    RepoSettings,
    SandboxSection,
)
from codebutler.protocol.capabilities import AgentResult, Capability, CheckupLine, cells_of
from codebutler_worker.agents.survey import CLAUDE, KIMI, dotted
from codebutler_worker.checkup import Checkup, look
from tests.modelserver.obedient import ObedientCompletions, ObedientServer
from tests.modelserver.server import Reply
from tests.ordinary import give_logins_away
from tests.programs import CLAUDE_VERSION, KIMI_VERSION, path_with_node, require

KEY = "sk-not-a-real-key-0123456789"
WALLS = SandboxSection(mode="bwrap")
ACP_AGENT = Path(__file__).parents[2] / "acpagent" / "agent.py"


async def tried(home: Path, config: Config, env: Mapping[str, str]) -> list[CheckupLine]:
    require("bwrap")
    give_logins_away(home)
    given = {"PATH": path_with_node(), **env}
    repo = RepoSettings(name="shop", path="", channel_id="", config=config, agent_env=given)
    checkup = Checkup(group=(repo,), state=str(home / "state"), live=True)
    return [line async for line in look(checkup, home)]


def row(lines: list[CheckupLine], agent: str) -> AgentResult:
    return next(line.row for line in lines if line.row is not None and line.row.agent == agent)


def states(found: AgentResult) -> dict[Capability, str]:
    return {name: cell.state for name, cell in cells_of(found).items()}


ALL_YES: dict[Capability, str] = {
    "answer": "yes",
    "resume": "yes",
    "resume-after-kill": "yes",
    "tools": "yes",
    "deny": "yes",
    "stop": "yes",
    "image": "yes",
    "cost": "yes",
    "plan": "yes",
    "mcp": "yes",
}


@pytest.mark.timeout(400)
async def test_claude_code_can_do_everything(tmp_path: Path) -> None:
    binary = require("claude")
    async with ObedientServer() as model:
        env = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": KEY}
        config = Config(sandbox=WALLS)
        path = f"{binary.parent}:{path_with_node()}"
        lines = await tried(tmp_path, config, {**env, "PATH": path})
    found = row(lines, "claude")
    assert states(found) == ALL_YES, found
    assert (found.version, found.floor, found.tested) == (
        CLAUDE_VERSION,
        dotted(CLAUDE.floor),
        dotted(CLAUDE.tested),
    )
    assert found.repos == ("shop",)
    assert (found.turns, found.cost_usd > 0) == (9, True)
    steps = [line.step for line in lines if line.step]
    assert "claude 9" in steps[0]
    assert [step for step in steps if step.startswith("claude: run 9 of 9")]
    assert KEY not in str(lines)


@pytest.mark.timeout(400)
async def test_kimi_code_tells_what_is_missing_with_its_fix(tmp_path: Path) -> None:
    binary = require("kimi")
    async with ObedientServer() as model:
        kimi = KimiSection(binary=str(binary), api_key=KEY, base_url=f"{model.url}/v1")
        lines = await tried(tmp_path, Config(sandbox=WALLS, kimi=kimi), {})
    found = row(lines, "kimi")
    cells = cells_of(found)
    assert states(found) == {**ALL_YES, "cost": "no"}, found
    assert "native.prices" in cells["cost"].fix
    assert (found.version, found.tested) == (KIMI_VERSION, dotted(KIMI.tested))
    [told] = [
        line.finding
        for line in lines
        if line.finding and line.finding.area == "live" and line.finding.subject == "kimi"
    ]
    assert (told.level, "missing: cost" in told.text) == ("warn", True)


async def test_the_native_agent_says_what_it_is_not_made_for(tmp_path: Path) -> None:
    async with ObedientCompletions() as model:
        native = NativeSection(
            base_url=model.base_url, api_key=KEY, model="m", prices={"m": Price(input=1000, output=1000)}
        )
        config = Config(sandbox=WALLS, native=native, agent=AgentSection(default="native"))
        found = row(await tried(tmp_path, config, {}), "native")
    assert states(found) == {**ALL_YES, "image": "not supported", "mcp": "not supported"}, found
    assert found.model == "m"


async def test_an_agent_that_gives_no_answer_is_tried_no_further(tmp_path: Path) -> None:
    async with ObedientCompletions() as model:
        model.play(Reply(status=401, error="no such key"))
        native = NativeSection(base_url=model.base_url, api_key=KEY, model="m")
        config = Config(sandbox=WALLS, native=native, agent=AgentSection(default="native"))
        lines = await tried(tmp_path, config, {})
    found = row(lines, "native")
    assert (found.turns, states(found)["answer"], states(found)["stop"]) == (1, "no", "not tried")
    assert cells_of(found)["answer"].fix
    failed = [line.finding for line in lines if line.finding and line.finding.level == "FAIL"]
    assert [each.subject for each in failed if each.area == "live"] == ["native"]


async def test_programs_of_the_configuration_are_tried_as_far_as_their_kind_allows(tmp_path: Path) -> None:
    (tmp_path / ".other").mkdir()
    script = str(shutil.copy(ACP_AGENT, tmp_path / ".other"))
    speaks = CommandRule(
        prefix="other",
        binary="/usr/bin/python3",
        args=(script, "plain"),
        mode="acp",
        home_paths=(".other",),
    )
    prints = CommandRule(
        prefix="prints",
        binary="/bin/sh",
        args=("-c", 'case "$0" in *seq*) sleep 60;; esac; echo hi'),
        mode="headless",
    )
    quick = CommandRule(prefix="quick", binary="/bin/echo", args=("{session}", "{prompt}"), mode="headless")
    lines = await tried(tmp_path, Config(sandbox=WALLS, commands=(speaks, prints, quick)), {})
    other, echo = states(row(lines, "other")), states(row(lines, "quick"))
    # It repeats what it is told, and calls no tool.
    assert (other["answer"], other["tools"], other["plan"]) == ("yes", "no", "not supported")
    assert (echo["answer"], echo["deny"], echo["mcp"]) == ("yes", "not supported", "not supported")
    assert echo["resume"] == "no"
    slow = row(lines, "prints")
    assert states(slow)["stop"] == "yes", slow
    assert states(slow)["resume"] == "not supported"

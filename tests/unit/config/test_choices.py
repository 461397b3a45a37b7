"""What a thread may choose for an agent, against what is configured."""

from __future__ import annotations

import msgspec
import pytest

from codebutler.config.programs import CONFIGURED, Choice, Mode, is_looser, model_section_of, with_choice
from codebutler.config.schema import ClaudeSection, CommandRule, Config, PermissionMode

PLAIN = Config()


@pytest.mark.parametrize("agent", ["claude", "kimi", "native"])
def test_a_choice_changes_that_agent_only(agent: str) -> None:
    chosen = msgspec.to_builtins(with_choice(PLAIN, agent, Choice("m", "plan")))
    before = msgspec.to_builtins(PLAIN)
    assert chosen[agent] == before[agent] | {"model": "m", "permissionMode": "plan"}
    assert {**chosen, agent: 0} == {**before, agent: 0}


@pytest.mark.parametrize("agent", ["rehearsal", "goose", "run", "undo"])
def test_an_agent_without_settings_stays_as_it_is(agent: str) -> None:
    assert with_choice(PLAIN, agent, Choice("m", "plan")) == PLAIN
    assert model_section_of(PLAIN, agent) is None


def test_the_usual_model_is_the_configured_one_where_there_is_one() -> None:
    chosen = Choice("default")
    assert with_choice(PLAIN, "claude", chosen).claude.model == "default"
    opus = Config(claude=ClaudeSection(model="opus"))
    assert with_choice(opus, "claude", chosen).claude.model == "opus"


def test_without_a_choice_nothing_changes() -> None:
    assert with_choice(PLAIN, "claude", CONFIGURED) is PLAIN


@pytest.mark.parametrize(
    ("configured", "chosen", "looser"),
    [
        ("bypassPermissions", "bypassPermissions", False),
        ("acceptEdits", "bypassPermissions", True),
        ("ask", "acceptEdits", True),
        ("plan", "ask", True),
        ("ask", "plan", False),
        ("ask", "", False),
    ],
)
def test_what_asks_less_is_looser(configured: PermissionMode, chosen: Mode, looser: bool) -> None:
    config = Config(claude=ClaudeSection(permission_mode=configured))
    assert is_looser(config, "claude", chosen) is looser


@pytest.mark.parametrize(
    "rule",
    [
        CommandRule(prefix="kimi", binary="other", args=("acp",), mode="acp"),
        CommandRule(prefix="kimi", binary="kimi", mode="interactive"),
    ],
)
def test_another_program_in_an_agents_place_has_no_settings(rule: CommandRule) -> None:
    assert model_section_of(Config(commands=(rule,)), "kimi") is None

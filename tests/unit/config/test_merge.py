from __future__ import annotations

import msgspec

from codebutler.config.load import DEFAULT, Layer, default_layer, merge
from codebutler.config.schema import Config


def test_later_layers_win_field_by_field() -> None:
    merged = merge(
        [
            Layer("global", {"claude": {"model": "opus", "maxTurns": 5}, "agent": {"busy": "steer"}}),
            Layer("repo", {"claude": {"maxTurns": 7}}),
            Layer("environment", {"claude": {"model": "haiku"}}),
        ]
    )

    assert merged.values["claude"] == {"model": "haiku", "maxTurns": 7}
    assert merged.values["agent"] == {"busy": "steer"}
    assert merged.provenance == {
        "claude.model": "environment",
        "claude.maxTurns": "repo",
        "agent.busy": "global",
    }


def test_lists_replace() -> None:
    merged = merge(
        [
            Layer("global", {"slack": {"allowedUsers": ["U111", "U222"]}}),
            Layer("repo", {"slack": {"allowedUsers": ["U333"]}}),
        ]
    )

    assert merged.values["slack"]["allowedUsers"] == ["U333"]


def test_commands_are_added_and_a_same_prefix_replaces() -> None:
    merged = merge(
        [
            default_layer(),
            Layer("global", {"commands": [{"prefix": "lint", "binary": "ruff"}]}),
            Layer("repo", {"commands": [{"prefix": "run", "binary": "zsh"}]}),
        ]
    )

    commands = {rule.prefix: rule for rule in msgspec.convert(merged.values, Config).commands}
    assert list(commands) == ["claude", "kimi", "agent", "run", "lint"]
    assert commands["run"].binary == "zsh"
    assert commands["run"].args == ()
    assert merged.provenance["commands.lint"] == "global"
    assert merged.provenance["commands.run"] == "repo"
    assert merged.provenance["commands.claude"] == DEFAULT


def test_the_built_in_commands_start_the_configured_programs() -> None:
    layer = Layer("environment", {"claude": {"binary": "/opt/claude"}, "kimi": {"binary": "/opt/kimi"}})
    replaced = Layer("repo", {"commands": [{"prefix": "kimi", "binary": "other"}]})

    commands = {rule["prefix"]: rule for rule in merge([default_layer(), layer, replaced]).values["commands"]}
    assert commands["claude"]["binary"] == "/opt/claude"
    assert commands["kimi"]["binary"] == "other"


def test_the_layers_themselves_are_not_changed() -> None:
    first = Layer("a", {"claude": {"model": "opus"}})

    merge([first, Layer("b", {"claude": {"model": "haiku"}})])

    assert first.values == {"claude": {"model": "opus"}}


def test_the_defaults_alone_are_a_whole_config_with_nobody_allowed() -> None:
    config = msgspec.convert(merge([default_layer()]).values, Config)

    assert config.slack.allowed_users == ()
    assert config.sandbox.mode == "auto"

from __future__ import annotations

import pytest

from codebutler.config.load import known_keys, merge
from codebutler.config.resolve import VARIABLES, env_layers, parse_env_file
from codebutler.domain.errors import ConfigError


def test_every_variable_names_a_key_of_the_schema() -> None:
    for variable in VARIABLES.values():
        section, _, key = variable.key.partition(".")
        assert key in known_keys(section), variable.key


def test_values_are_converted_and_their_variable_is_their_source() -> None:
    env = {
        "ALLOWED_USER_IDS": "U0123AAA, U0123BBB,",
        "SLACK_LISTEN_CHANNELS": "C0123ABCD,C9876ZYXW",
        "SESSION_TIMEOUT_MINUTES": "2.5",
        "OUTPUT_FLUSH_INTERVAL_MS": "1000",
        "LOG_LEVEL": "DEBUG",
        "CLI_CLAUDE": "/opt/claude",
        "PATH": "/bin",
    }

    merged = merge(env_layers(env))

    assert merged.values["slack"] == {
        "allowedUsers": ["U0123AAA", "U0123BBB"],
        "listenChannels": ["C0123ABCD", "C9876ZYXW"],
    }
    assert merged.values["session"] == {"timeoutMinutes": 2.5}
    assert merged.values["output"] == {"flushIntervalMs": 1000}
    assert merged.values["logs"] == {"level": "debug"}
    assert merged.provenance["claude.binary"] == "environment CLI_CLAUDE"


def test_an_empty_variable_is_not_set() -> None:
    assert merge(env_layers({"LOG_LEVEL": " ", "ALLOWED_USER_IDS": ""})).values == {"commands": []}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("LOG_LEVEL", "loud", "environment LOG_LEVEL: logs.level: expected one of debug, error, info, warn"),
        (
            "OUTPUT_FLUSH_INTERVAL_MS",
            "2s",
            "(output.flushIntervalMs): expected a whole number of milliseconds",
        ),
        ("OUTPUT_FLUSH_INTERVAL_MS", "10", "output.flushIntervalMs: expected a whole number of at least 250"),
        ("SESSION_TIMEOUT_MINUTES", "inf", "(session.timeoutMinutes): expected a number of minutes"),
        ("ALLOWED_USER_IDS", "bob", "slack.allowedUsers[0]: expected a Slack user ID"),
        ("SLACK_APP_TOKEN", "xoxb-SECRET", "slack.appToken: expected an app-level token (xapp-…)"),
    ],
)
def test_a_bad_value_is_told_by_variable_and_key(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        env_layers({name: value})

    assert said in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_an_env_file_understands_what_people_write() -> None:
    text = """\
# === SLACK ===
SLACK_APP_TOKEN=xapp-1    # Socket Mode
export LOG_LEVEL = debug
QUOTED="a # b" # c
SINGLE='x"y'
HASH=a#b
EMPTY=
"""
    assert parse_env_file(text.encode(), ".env") == {
        "SLACK_APP_TOKEN": "xapp-1",
        "LOG_LEVEL": "debug",
        "QUOTED": "a # b",
        "SINGLE": 'x"y',
        "HASH": "a#b",
        "EMPTY": "",
    }


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"A=1\nxoxb-SECRET\n", ".env: line 2: expected NAME=value"),
        (b'A="SECRET', ".env: line 1: the quotes do not match"),
        (b"A=\xff", ".env: not valid UTF-8"),
    ],
)
def test_a_bad_env_file_is_told_by_line(data: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_env_file(data, ".env")

    assert said in str(caught.value)
    assert "SECRET" not in str(caught.value)

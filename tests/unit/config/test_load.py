from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.config.load import parse_layer, token_fault
from codebutler.domain.errors import EXIT_CONFIGURATION, ConfigError, LegacyConfigError

KEYS = [
    "slack",
    "agent",
    "claude",
    "commands",
    "authorization",
    "budget",
    "repo",
    "rules",
    "prefix",
    "timeout",
]


def refusal(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(ConfigError) as caught:
        parse_layer(data, "config.json")
    assert caught.value.exit_code == EXIT_CONFIGURATION
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_good_file_is_returned_as_it_is() -> None:
    assert parse_layer(b'{"claude": {"maxTurns": 3}}', "config.json") == {"claude": {"maxTurns": 3}}


def test_a_byte_order_mark_is_no_fault() -> None:
    assert parse_layer(b'\xef\xbb\xbf{"agent": {}}', "config.json") == {"agent": {}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"claude": {"maxTurns": "ten"}}',
            "config.json: claude.maxTurns: expected a whole number, got text",
        ),
        (
            '{"claude": {"maxTurns": true}}',
            "config.json: claude.maxTurns: expected a whole number, got true or false",
        ),
        (
            '{"claude": {"maxTurns": -1}}',
            "config.json: claude.maxTurns: expected a whole number of at least 0",
        ),
        (
            '{"claude": {"permissionMode": "yolo"}}',
            "config.json: claude.permissionMode: expected one of acceptEdits, ask, bypassPermissions, plan",
        ),
        ('{"claude": {"maxTurn": 1}}', "config.json: claude.maxTurn: unknown key (did you mean maxTurns?)"),
        ('{"slak": {}}', "config.json: slak: unknown key (did you mean slack?)"),
        (
            '{"budget": {"timezone": "Mars/Olympus"}}',
            "config.json: budget.timezone: unknown time zone 'Mars/Olympus': write one like Europe/Berlin",
        ),
        (
            '{"budget": {"user": {"usdPerDay": -1}}}',
            "config.json: budget.user.usdPerDay: expected a number of at least 0",
        ),
        (
            '{"budget": {"user": {"usdPerDay": 1e999}}}',
            "config.json: budget.user.usdPerDay: expected a number of at most 1000000000",
        ),
        (
            '{"budget": {"thread": {"euroPerDay": 1}}}',
            "config.json: budget.thread.euroPerDay: unknown key (did you mean turnsPerDay?)",
        ),
        ('{"claude": []}', "config.json: claude: expected an object with keys such as binary"),
        (
            '{"slack": {"allowedUsers": ["U0123ABC", "bob"]}}',
            "config.json: slack.allowedUsers[1]: expected a Slack user ID such as U0123ABCD",
        ),
        (
            '{"slack": {"channelID": "#general"}}',
            "config.json: slack.channelID: expected a Slack channel ID such as C0123ABCD",
        ),
        (
            '{"slack": {"channelID": "C0123ABC\\n"}}',
            "config.json: slack.channelID: expected a Slack channel ID such as C0123ABCD",
        ),
        (
            '{"sandbox": {"hosts": ["example.org", "no host"]}}',
            "config.json: sandbox.hosts[1]: expected a host such as example.org, *.example.org or",
        ),
        (
            '{"kimi": {"baseUrl": "ftp://x"}}',
            "config.json: kimi.baseUrl: expected a URL that begins with http:// or https://",
        ),
        ('{"commands": [{"prefix": "x"}]}', "config.json: commands[0].binary: is missing"),
        (
            '{"commands": [{"prefix": "x", "binary": "x", "mode": "fast"}]}',
            "config.json: commands[0].mode: expected one of acp, headless, interactive, one-shot",
        ),
        *(
            (
                f'{{"commands": [{{"prefix": "x", "binary": "x", "homePaths": [".x", "{path}"]}}]}}',
                "config.json: commands[0].homePaths[1]: expected a path below the home directory such as .gemini",
            )
            for path in ("", ".", "./", "/etc", "..", "a/../..")
        ),
        (
            '{"commands": [{"prefix": "x", "binary": "x"}, {"prefix": "x", "binary": "y"}]}',
            "config.json: commands[1].prefix: x is defined twice",
        ),
        (
            '{"budget": {"repo": {"turnsPerDay": 0}}}',
            "config.json: budget.repo.turnsPerDay: expected a whole number of at least 1",
        ),
        (
            '{"agent": {"debounceSeconds": 1e308}}',
            "config.json: agent.debounceSeconds: expected a number of at most 86400",
        ),
        (
            '{"agent": {"parallelTurns": 1000000}}',
            "config.json: agent.parallelTurns: expected a whole number of at most 64",
        ),
        (
            '{"claude": {"timeout": 1e300}}',
            "config.json: claude.timeout: expected a number of at most 525600",
        ),
        ("[]", 'config.json: expected a JSON object such as {"agent": {…}}'),
        ('{"agent": {}', "config.json: line 1 column 13: malformed JSON"),
        ('{"agent": {}, "agent": {}}', "the key agent appears twice in one object"),
        ('{"agent": {"debounceSeconds": NaN}}', "NaN is not a JSON number"),
        ("", "config.json: line 1 column 1: malformed JSON"),
    ],
)
def test_bad_input_names_file_key_and_expectation(text: str, said: str) -> None:
    assert said in refusal(text)


def test_invalid_utf8_is_told_with_its_line() -> None:
    assert refusal(b'{\n"agent": {"default": "\xff"}}') == (
        "config.json: line 2: not valid UTF-8: save the file as UTF-8"
    )


def test_a_bottomless_document_is_refused() -> None:
    assert "malformed JSON" in refusal('{"a":' + "[" * 100_000)


def test_a_pattern_that_does_not_compile_is_refused() -> None:
    assert "authorization.blocklist[0]: expected a regular expression" in refusal(
        '{"authorization": {"blocklist": ["("]}}'
    )


@pytest.mark.parametrize("pattern", [r"rm (?!-i)", r"(?<=sudo )rm", r"(.)\\1", "a**", "x{2000}"])
def test_a_pattern_that_takes_more_than_linear_time_is_refused(pattern: str) -> None:
    said = refusal(f'{{"authorization": {{"allowlist": ["^ls$", "{pattern}"]}}}}')
    assert (
        "authorization.allowlist[1]: expected a regular expression in RE2 syntax, without look-around" in said
    )
    assert "RE2" in said
    assert "\n" not in said


def test_a_file_of_the_whatsapp_era_is_told_how_to_migrate() -> None:
    with pytest.raises(LegacyConfigError, match="codebutler migrate"):
        parse_layer(b'{"whatsapp": {"groupJID": "1@g.us"}}', "config.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"slack": {"botToken": "%s"}}',
            "slack.botToken: expected a bot token (xoxb-…), this is an app-level",
        ),
        ('{"slack": {"botToken": "%s", "x": 1}}', "slack.x: unknown key"),
        ('{"agent": {"default": "%s"}}', "agent.default: expected a lower-case word"),
        ('{"slack": {"apiBaseUrl": "%s"}}', "slack.apiBaseUrl: expected a URL"),
        ('{"slack": {"botToken": ["%s"]}}', "slack.botToken: expected text, got a list"),
        ('{"slack": {"botToken": "%s"', "malformed JSON"),
    ],
)
def test_no_refusal_shows_a_secret(text: str, said: str) -> None:
    line = refusal(text % "xapp-1-A1-SECRETVALUE")
    assert said in line
    assert "SECRET" not in line


def test_tokens_are_told_apart_by_kind() -> None:
    assert token_fault("slack.botToken", "xoxb-1-2-abc") == ""
    assert token_fault("slack.botToken", "xoxe.xoxb-1-abc") == ""
    assert "a user token" in token_fault("slack.botToken", "xoxp-1-2-abc")
    assert "only its beginning" in token_fault("slack.botToken", "xoxb-")
    assert "spaces" in token_fault("slack.botToken", "xoxb-1 2")
    assert token_fault("slack.botToken", "hello") == "expected a bot token (xoxb-…)"
    assert token_fault("slack.appToken", "xapp-1-A-1-abc") == ""
    assert "a bot token" in token_fault("slack.appToken", "xoxb-1-2-abc")


@pytest.mark.parametrize(
    "text",
    [
        '{"claude": {"model": "a\\u0000b"}}',
        '{"claude": {"extraArgs": ["\\ud800"]}}',
        '{"\\udfff": {}}',
        '{"agent": {"\\ud800": 1}}',
        '{"approvals": {"quorum": {"\\udfff": 2}}}',
    ],
)
def test_text_no_program_can_take_is_refused(text: str) -> None:
    assert "expected text without NUL and without invalid characters" in refusal(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner),
)


@given(
    st.dictionaries(st.sampled_from(KEYS), JSON).map(lambda value: json.dumps(value).encode()) | st.binary()
)
def test_whatever_a_file_holds_it_is_taken_or_refused_in_one_line(data: bytes) -> None:
    said = outcome(data)

    assert said == "taken" or said.startswith("config.json")
    assert said.isprintable()
    assert said.encode()


def outcome(data: bytes) -> str:
    try:
        parse_layer(data, "config.json")
    except ConfigError as error:
        return str(error)
    return "taken"


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ('{"spy": {}}', "claude.mcp.spy: expected either a command or a url"),
        (
            '{"spy": {"command": "a", "url": "https://b"}}',
            "claude.mcp.spy: expected either a command or a url",
        ),
        ('{"spy": {"url": "file:///etc"}}', "claude.mcp"),
        ('{"spy": {"command": "a", "env": {}}}', "env: unknown key"),
        ('{"--x": {"command": "a"}}', "a short name of lower-case letters"),
        ('{"codebutler": {"command": "a"}}', "other than codebutler"),
    ],
)
def test_an_mcp_server_is_a_program_or_an_address(server: str, said: str) -> None:
    assert said in refusal(f'{{"claude": {{"mcp": {server}}}}}')

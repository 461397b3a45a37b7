"""How what is found is judged."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from codebutler.chat.slack.app import BOT_SCOPES, TokenFacts, ahead_of, clock_finding, scopes_finding
from codebutler.cli.doctor import report_lines
from codebutler.config.chats import SlackSection
from codebutler.config.schema import AgentSection, Config, RepoSettings, SandboxSection
from codebutler.operations.doctor import disk_finding, group_alike
from codebutler.protocol.messages import fail, ok, warn
from codebutler_worker.agents.survey import Survey
from codebutler_worker.checkup import agent_finding

FACTS = TokenFacts(team="Testers", user_id="U1", scopes=frozenset(BOT_SCOPES), ahead_s=0.2)
NOW = datetime(2026, 3, 1, 12, 0, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("free_mb", "level"), [(50_000, "ok"), (1025, "ok"), (1000, "warn"), (101, "warn"), (99, "FAIL")]
)
def test_a_disk_is_judged_by_what_is_left(free_mb: int, level: str) -> None:
    assert disk_finding(Path("/srv"), free_mb * 2**20).level == level


def test_a_missing_scope_fails_and_is_named() -> None:
    assert scopes_finding(FACTS).level == "ok"
    scopes = frozenset(BOT_SCOPES) - {"files:read", "commands"} | {"users:read"}
    told = scopes_finding(_with(scopes))
    assert told.level == "FAIL"
    assert "commands, files:read" in told.text
    assert scopes_finding(_with(None)).level == "warn"
    nameless = scopes_finding(_with(frozenset(BOT_SCOPES) - {"users:read"}))
    assert (nameless.level, "shown by their IDs" in nameless.text) == ("warn", True)


def _with(scopes: frozenset[str] | None) -> TokenFacts:
    return TokenFacts(team="Testers", user_id="U1", scopes=scopes, ahead_s=None)


@pytest.mark.parametrize(
    ("ahead_s", "level", "word"),
    [
        (None, "ok", "no date"),
        (0.4, "ok", "within 1 s"),
        (-59, "ok", "59 s"),
        (3600, "warn", "ahead of"),
        (-3600, "warn", "behind"),
    ],
)
def test_a_clock_is_compared_with_slacks(ahead_s: float | None, level: str, word: str) -> None:
    told = clock_finding(ahead_s)
    assert (told.level, word in told.text) == (level, True)


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("Sun, 01 Mar 2026 12:00:10 GMT", -0.5),
        ("Sun, 01 Mar 2026 11:00:10 GMT", 3599.5),
        ("yesterday", None),
        ("", None),
    ],
)
def test_the_date_header_tells_the_difference(date: str, expected: float | None) -> None:
    assert ahead_of(date, NOW) == expected


def test_an_agent_that_is_missing_fails_only_where_it_is_the_default() -> None:
    missing = Survey("claude", ready=False, note="Claude Code is not installed: run `npm …`")
    assert agent_finding(missing, "claude").level == "FAIL"
    assert agent_finding(missing, "rehearsal").level == "ok"
    assert agent_finding(Survey("agent", ready=False, note="no key"), "native", "native").level == "FAIL"
    newer = Survey("claude", ready=True, note="Claude Code 9.9.9 is newer than 2.1.328", version="9.9.9")
    assert agent_finding(newer, "claude").level == "warn"
    assert agent_finding(Survey("claude", ready=True, version="2.1.328"), "claude").text == "2.1.328"


def test_repositories_that_differ_in_their_channel_only_are_looked_at_once() -> None:
    def settings(name: str, config: Config) -> RepoSettings:
        slack = SlackSection(channel_id=f"C{name.upper()}")
        config = msgspec.structs.replace(config, slack=slack)
        return RepoSettings(name=name, path=f"/srv/{name}", channel_id=f"C{name.upper()}", config=config)

    plain = Config()
    careless = Config(sandbox=SandboxSection(mode="none"))
    offline = Config(agent=AgentSection(default="rehearsal"))
    given = [
        settings("one", plain),
        settings("two", careless),
        settings("three", plain),
        settings("four", offline),
    ]
    assert [[each.name for each in group] for group in group_alike(given)] == [
        ["one", "three"],
        ["two"],
        ["four"],
    ]


FINDINGS = (
    ok("home", "/h", "private"),
    warn("disk", "/h", "scarce"),
    ok("slack", "bot token", "fine"),
    fail("slack", "app token", "refused: do\x1b this"),
    ok("home", "configuration", "is valid"),
)


def test_what_needs_attention_is_shown_by_area_and_the_rest_in_a_line() -> None:
    assert list(report_lines(FINDINGS, every=False)) == [
        "Disk",
        "  warn  /h: scarce",
        "Slack",
        "  FAIL  app token: refused: do? this",
        "ok    3 checks: home, slack (`--all` shows each)",
        "3 ok, 1 warning, 1 failed",
    ]
    assert list(report_lines(FINDINGS[:1], every=False)) == [
        "ok    1 check: home (`--all` shows each)",
        "1 ok, 0 warnings, 0 failed",
    ]


def test_all_of_it_is_shown_by_area() -> None:
    assert list(report_lines(FINDINGS, every=True)) == [
        "Home",
        "  ok    /h: private",
        "  ok    configuration: is valid",
        "Disk",
        "  warn  /h: scarce",
        "Slack",
        "  ok    bot token: fine",
        "  FAIL  app token: refused: do? this",
        "3 ok, 1 warning, 1 failed",
    ]

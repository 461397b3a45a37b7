"""What a text asks for."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.domain.model import Command, NoRequest, Prompt, Request
from codebutler.text.requests import request_of, slash_request
from tests import events
from tests.events import posted, slashed

PREFIXES = {"claude", "kimi", "agent", "run", "gemini"}


def text_request(text: str, prefixes: Collection[str]) -> Request:
    return request_of(posted(channel="C1", ref="1.1", user="U1", text=text), prefixes)


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("fix the login bug", Prompt(text="fix the login bug")),
        ("!status", Command(name="status")),
        ("/butler status", Command(name="status")),
        ("/butler", Command(name="help")),
        ("/butler!", Prompt(text="/butler!")),
        ("  !Logs tail 5 ", Command(name="logs", argument="tail 5")),
        ("!nosuchword", Command(name="nosuchword")),
        ("!c ls -la", Prompt(text="ls -la", prefix="run")),
        ("!c", Command(name="c")),
        ("!checks", Prompt(text="checks", prefix="checks")),
        ("!checks lint", Command(name="checks", argument="lint")),
        ("!create-image a fox", Prompt(text="a fox", prefix="image")),
        ("/agent fix the test", Prompt(text="fix the test", prefix="agent")),
        ("/Agent\nfirst\nsecond", Prompt(text="first\nsecond", prefix="agent")),
        ("!agent fix the test", Prompt(text="fix the test", prefix="agent")),
        ("/butler agent fix the test", Prompt(text="fix the test", prefix="agent")),
        ("/agent", Command(name="agent")),
        ("/agents", Command(name="agents")),
        ("/agent/main.py is broken", Prompt(text="/agent/main.py is broken")),
        ("/claude why?", Prompt(text="why?", prefix="claude")),
        ("!kimi why?", Prompt(text="why?", prefix="kimi")),
        ("!gemini why?", Prompt(text="why?", prefix="gemini")),
        ("/butler gemini why?", Prompt(text="why?", prefix="gemini")),
        ("!gemini", Command(name="gemini")),
        ("race: fix it", Command(name="race", argument="fix it")),
        ("!race claude kimi: fix it", Command(name="race", argument="claude kimi: fix it")),
        ("/race fix it", Command(name="race", argument="fix it")),
        ("/run is full", Prompt(text="/run is full")),
        ("/butler undo", Command(name="undo")),
        ("/status", Command(name="status")),
        ("/etc/hosts looks wrong", Prompt(text="/etc/hosts looks wrong")),
        ("/tmp", Prompt(text="/tmp")),
        ("claude: why?", Prompt(text="why?", prefix="claude")),
        ("Kimi:\nfirst\nsecond", Prompt(text="first\nsecond", prefix="kimi")),
        ("todo: water the plants", Prompt(text="todo: water the plants")),
        ("http://example.org is down", Prompt(text="http://example.org is down")),
        ("!!! it broke", Prompt(text="!!! it broke")),
        ("wow! status", Prompt(text="wow! status")),
    ],
)
def test_text_is_a_command_a_named_agents_prompt_or_a_prompt(text: str, request_: Request) -> None:
    assert text_request(text, PREFIXES) == request_


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("", Command(name="help")),
        ("status", Command(name="status")),
        ("!status now", Command(name="status", argument="now")),
        ("c make test", Prompt(text="make test", prefix="run")),
    ],
)
def test_a_slash_commands_first_word_is_the_command(text: str, request_: Request) -> None:
    assert slash_request(text) == request_


def test_an_event_without_text_asks_for_nothing() -> None:
    deleted = events.deleted(channel="C1", ref="1.1", user="U1")
    slash = slashed(channel="C1", user="U1", command="/butler", text="ping", invocation="1")
    assert request_of(deleted, PREFIXES) == NoRequest()
    assert request_of(slash, PREFIXES) == Command(name="ping")


@given(st.text())
def test_no_text_is_refused_and_no_prompt_is_altered(text: str) -> None:
    event = posted(channel="C1", ref="1.1", user="U1", text=text)
    request = request_of(event, PREFIXES)
    if isinstance(request, Prompt) and request.prefix is None:
        assert request.text == text


@pytest.mark.parametrize(
    ("written", "command"),
    [
        ("run: `git status`", "git status"),
        ("!c `git status`", "git status"),
        ("run: ```git status\ngit diff```", "git status\ngit diff"),
        ("run:\n```\nls\n```", "ls"),
        ("run: echo `date`", "echo `date`"),
        ("run: `a` && `b`", "`a` && `b`"),
        ("run: ``", "``"),
    ],
)
def test_a_command_in_code_marks_is_the_command(written: str, command: str) -> None:
    assert text_request(written, {"run"}) == Prompt(text=command, prefix="run")


def test_what_is_marked_as_code_for_an_agent_stays_as_it_is() -> None:
    assert text_request("claude: `ls`", {"claude"}) == Prompt(text="`ls`", prefix="claude")


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("!resume", Command(name="continue")),
        ("/butler resume", Command(name="continue")),
        ("!RESUME now", Command(name="continue", argument="now")),
        ("!image a lighthouse", Prompt(text="a lighthouse", prefix="image")),
        ("!image", Command(name="create-image")),
        # Agents have words of their own that begin with a slash.
        ("/resume", Prompt(text="/resume")),
    ],
)
def test_an_alias_means_its_command_after_our_own_marks(text: str, request_: Request) -> None:
    assert text_request(text, ()) == request_


def test_an_agent_of_the_configuration_is_not_taken_for_an_alias() -> None:
    assert text_request("!resume the tests", ("resume",)) == Prompt(text="the tests", prefix="resume")
    assert text_request("!continue", ("continue",)) == Command(name="continue")


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("\uff01status", Command(name="status")),
        ("! status", Command(name="status")),
        ("! STOP", Command(name="stop")),
        ("!stop.", Command(name="stop")),
        ("!stop!!", Command(name="stop")),
        ("!costs?", Command(name="costs")),
        ("!stop, please", Command(name="stop", argument="please")),
        ("!new\u2013repo shop", Command(name="new-repo", argument="shop")),
        ("\u200f!status", Command(name="status")),
        ("`!status`", Command(name="status")),
        ("!jobs\u00a0run x", Command(name="jobs", argument="run x")),
        ("!agent: fix the test", Prompt(text="fix the test", prefix="agent")),
        ("claude : pourquoi ?", Prompt(text="pourquoi ?", prefix="claude")),
        ("claude\uff1a\u4e3a\u4ec0\u4e48", Prompt(text="\u4e3a\u4ec0\u4e48", prefix="claude")),
        # Sentences that begin with an exclamation mark.
        ("! it broke", Prompt(text="! it broke")),
        ("! stop doing that", Prompt(text="! stop doing that")),
        ("!wow, it broke", Prompt(text="!wow, it broke")),
        ("`greet` is wrong", Prompt(text="`greet` is wrong")),
    ],
)
def test_a_command_is_understood_as_phones_and_other_keyboards_write_it(text: str, request_: Request) -> None:
    assert text_request(text, PREFIXES) == request_


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("ls \u2014all", "ls --all"),
        ("ls \u2013la", "ls -la"),
        ("echo \u201chi there\u201d", 'echo "hi there"'),
        ("git commit -m \u201cit\u2019s done\u201d", 'git commit -m "it\'s done"'),
        ("grep \u2018a b\u2019 x", "grep 'a b' x"),
        ("go test ./\u2026", "go test ./..."),
        ("ls\u00a0-la", "ls -la"),
        # What stands in plain quotes or code marks is meant.
        ("echo 'a \u201cb\u201d \u2014c'", "echo 'a \u201cb\u201d \u2014c'"),
        ('echo "a \\" \u201cb\u201d"', 'echo "a \\" \u201cb\u201d"'),
        ("`ls \u2014all`", "ls \u2014all"),
        ("echo it\u2019s \u2014 so", "echo it\u2019s \u2014 so"),
        ("touch a\u2013b", "touch a\u2013b"),
    ],
)
def test_a_shell_gets_the_plain_characters_that_a_phone_replaced(typed: str, command: str) -> None:
    assert text_request(f"run: {typed}", PREFIXES) == Prompt(text=command, prefix="run")
    assert text_request(f"!c {typed}", PREFIXES) == Prompt(text=command, prefix="run")
    assert text_request(f"claude: {typed}", PREFIXES) == Prompt(text=typed, prefix="claude")

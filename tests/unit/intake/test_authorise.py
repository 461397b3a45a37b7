"""Who may do what, on every path."""

from __future__ import annotations

import time

import msgspec
import pytest

from codebutler.config.rules import rules_allow
from codebutler.config.schema import (
    AuthorizationRule,
    AuthorizationSection,
    CommandRule,
    Config,
    SlackSection,
)
from codebutler.intake.authorise import ask_of, authorise
from codebutler.model import (
    OPERATOR,
    ButtonClicked,
    Command,
    Event,
    File,
    MessageDeleted,
    MessageEdited,
    MessagePosted,
    NoRequest,
    Origin,
    Prompt,
    Request,
    SlashCommand,
)

OWNER, GUEST = "U0OWNER", "U0GUEST"
TALK = Prompt(text="hello")


def config(
    *rules: AuthorizationRule, allowed: tuple[str, ...] = (OWNER,), allowlist: tuple[str, ...] = ()
) -> Config:
    return Config(
        slack=SlackSection(allowed_users=allowed),
        authorization=AuthorizationSection(rules=rules, allowlist=allowlist),
    )


def paths(user: str) -> list[tuple[Event, Request]]:
    """The same person on every path an event can take."""
    return [
        (MessagePosted(channel="C1", ts="1.1", user=user, text="hello"), TALK),
        (MessagePosted(channel="C1", ts="1.2", user=user, text="hello", thread_ts="1.1"), TALK),
        (MessagePosted(channel="C1", ts="1.3", user=user, text="!status"), Command(name="status")),
        (MessagePosted(channel="C1", ts="1.7", user=user, text="", files=(File(id="F1"),)), Prompt(text="")),
        (MessagePosted(channel="C1", ts="1.8", user=user, text="hello", origin="schedule"), TALK),
        (MessageEdited(channel="C1", ts="1.1", user=user, text="hello", edited_ts="1.4"), TALK),
        (MessageDeleted(channel="C1", ts="1.1", user=user), NoRequest()),
        (
            SlashCommand(channel="C1", user=user, command="/butler", text="", trigger_id="t"),
            Command(name="help"),
        ),
        (
            ButtonClicked(
                channel="C1",
                user=user,
                message_ts="1.5",
                action_id="codebutler.stop",
                value="x",
                action_ts="1.6",
            ),
            NoRequest(),
        ),
    ]


@pytest.mark.parametrize(("event", "request_"), paths(OWNER))
def test_the_owner_is_let_in_on_every_path(event: Event, request_: Request) -> None:
    assert authorise(config(), ask_of(event, request_, "claude")).allowed


@pytest.mark.parametrize(("event", "request_"), [*paths(GUEST), *paths("")])
def test_a_stranger_is_refused_on_every_path_and_told_why(event: Event, request_: Request) -> None:
    decision = authorise(config(), ask_of(event, request_, "claude"))
    assert not decision.allowed
    assert "not authorized" in decision.told


@pytest.mark.parametrize(("event", "request_"), paths(OWNER))
def test_an_empty_list_of_users_means_nobody(event: Event, request_: Request) -> None:
    assert not authorise(config(allowed=()), ask_of(event, request_, "claude")).allowed


def test_a_star_in_a_rule_means_the_allowed_users_and_nobody_else() -> None:
    rule = AuthorizationRule(channels=("C1",), users=("*",), allowed_prefixes=("claude",))
    talk = [MessagePosted(channel="C1", ts="1.1", user=user, text="hello") for user in (OWNER, GUEST)]
    decisions = [authorise(config(rule), ask_of(event, TALK, "claude")).allowed for event in talk]
    assert decisions == [True, False]


def test_a_rule_limits_the_channel_and_the_prefix() -> None:
    rule = AuthorizationRule(channels=("C1",), users=(OWNER,), allowed_prefixes=("claude",))
    here = MessagePosted(channel="C1", ts="1.1", user=OWNER, text="hello")
    there = MessagePosted(channel="C2", ts="1.1", user=OWNER, text="hello")
    assert authorise(config(rule), ask_of(here, TALK, "claude")).allowed
    assert not authorise(config(rule), ask_of(there, TALK, "claude")).allowed
    refusal = authorise(config(rule), ask_of(here, Prompt(text="ls", prefix="run"), "claude"))
    assert not refusal.allowed
    # Who is known is not told to become known.
    assert "not authorized to use `run:` here" in refusal.told
    assert "allowedUsers" not in refusal.told


@pytest.mark.parametrize(("origin", "allowed"), [("local", True), ("slack", False)])
def test_a_press_at_the_terminal_is_the_owners(origin: Origin, allowed: bool) -> None:
    press = ButtonClicked(
        channel="C1",
        user=OPERATOR,
        message_ts="1.5",
        action_id="codebutler.allow",
        value="x",
        action_ts="1.6",
        origin=origin,
    )
    strict = config(AuthorizationRule(channels=("C2",), users=("U2",), allowed_prefixes=("kimi",)))
    assert authorise(strict, ask_of(press, NoRequest(), "claude")).allowed is allowed


def test_the_owners_rules_do_not_bind_the_owner() -> None:
    strict = config(AuthorizationRule(channels=("C1",), users=(GUEST,), allowed_prefixes=("kimi",)))
    assert rules_allow(strict, OPERATOR, "C1", ("claude",))
    assert not rules_allow(strict, GUEST, "C1", ("claude",))


@pytest.mark.parametrize(("origin", "allowed"), [("local", True), ("schedule", True), ("slack", False)])
def test_the_operator_of_this_machine_needs_no_entry(origin: Origin, allowed: bool) -> None:
    """From the control socket, a job of a file or a hook; what comes from Slack is never the operator's."""
    wish = MessagePosted(channel="C1", ts="1.1", user=OPERATOR, text="hello", origin=origin)
    assert authorise(config(allowed=()), ask_of(wish, TALK, "claude")).allowed is allowed


@pytest.mark.parametrize(
    "command",
    [
        *("rm -rf /", "rm -rf --no-preserve-root /", "rm -r -f ~/", "rm -Rf /*", "make; rm -rf $HOME"),
        *("sudo shutdown now", "make && reboot", "halt", "systemctl poweroff"),
        *("mkfs.ext4 /dev/sda", "dd if=a of=/dev/sda", "echo x >/dev/sda"),
    ],
)
def test_the_blocklist_catches_accidents_even_the_operators(command: str) -> None:
    local = MessagePosted(channel="C1", ts="1.1", user="operator", text=command, origin="local")
    decision = authorise(config(), ask_of(local, Prompt(text=command, prefix="run"), "claude"))
    assert not decision.allowed
    assert "blocklist" in decision.told


@pytest.mark.parametrize(
    "command",
    [
        *(
            "grep -rn shutdown src",
            "git log --grep 'halt the queue'",
            "pytest -k reboot",
            "echo ok >/dev/null",
        ),
        *("dd if=/dev/zero of=/dev/null bs=1M count=9", "rm -rf build", "rm -rf /tmp/x ./y", "rm -f ~/notes"),
    ],
)
def test_the_blocklist_lets_everyday_work_alone(command: str) -> None:
    event = MessagePosted(channel="C1", ts="1.1", user=OWNER, text=command)
    assert authorise(config(), ask_of(event, Prompt(text=command, prefix="run"), "claude")).allowed


def test_an_allowlist_admits_only_what_it_names() -> None:
    only_make = config(allowlist=(r"^make( |$)",))
    event = MessagePosted(channel="C1", ts="1.1", user=OWNER, text="x")
    assert authorise(only_make, ask_of(event, Prompt(text="make test", prefix="run"), "claude")).allowed
    assert not authorise(only_make, ask_of(event, Prompt(text="ls", prefix="run"), "claude")).allowed


SHELL = CommandRule(prefix="sh", binary="/usr/bin/zsh", mode="interactive")


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", True),
        ("cd src\nls\n\nmake", True),
        ("ls\nrm -rf /\n", False),
        ("ls\r\nsudo reboot", False),
        ("x" * 1500 + "\n" + "y" * 1500, True),
        ("x" * 2001, False),
    ],
)
def test_a_shells_session_is_begun_with_lines_that_are_judged_each(text: str, allowed: bool) -> None:
    event = MessagePosted(channel="C1", ts="1.1", user=OWNER, text="x")
    with_shell = msgspec.structs.replace(config(), commands=(SHELL,))
    decision = authorise(with_shell, ask_of(event, Prompt(text=text, prefix="sh"), "claude"))
    assert decision.allowed is allowed


def test_what_is_no_shell_is_not_judged_as_one() -> None:
    event = MessagePosted(channel="C1", ts="1.1", user=OWNER, text="x")
    rules = (CommandRule(prefix="py", binary="python3", mode="interactive"),)
    with_python = msgspec.structs.replace(config(), commands=rules)
    talk = Prompt(text="rm -rf /", prefix="py")
    assert authorise(with_python, ask_of(event, talk, "claude")).allowed
    assert authorise(with_python, ask_of(event, Prompt(text="rm -rf /"), "claude")).allowed


@pytest.mark.parametrize(
    "hostile",
    ["rm -" + "r" * 1900, "dd " * 600, ":(){" * 450, "rm " * 13_000, "-rm " * 499, "rm -r " * 300],
)
def test_judging_a_command_takes_little_time(hostile: str) -> None:
    event = MessagePosted(channel="C1", ts="1.1", user=OWNER, text="x")
    started_s = time.monotonic()
    authorise(config(), ask_of(event, Prompt(text=hostile, prefix="run"), "claude"))
    assert time.monotonic() - started_s < 1


def test_a_command_too_long_to_judge_is_refused() -> None:
    event = MessagePosted(channel="C1", ts="1.1", user=OWNER, text="x")
    decision = authorise(config(), ask_of(event, Prompt(text="true " * 1000, prefix="run"), "claude"))
    assert not decision.allowed
    assert "longer than" in decision.told

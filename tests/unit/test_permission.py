"""Who may do what, whatever the path."""

from __future__ import annotations

import time
from typing import get_args

import msgspec
import pytest

from codebutler.config.chats import NewReposSection, SlackSection
from codebutler.config.permission import (
    ACTIONS,
    ANY_AGENT,
    Action,
    Person,
    Prefixes,
    Where,
    admitted,
    decide_request,
    may,
)
from codebutler.config.schema import AuthorizationRule, AuthorizationSection, CommandRule, Config
from codebutler.domain.model import (
    OPERATOR,
    Command,
    Event,
    File,
    NoRequest,
    Origin,
    Prompt,
    Request,
)
from tests.events import clicked, deleted, edited, posted, slashed

OWNER, GUEST = "U0OWNER", "U0GUEST"
TALK = Prompt(text="hello")


def config(
    *rules: AuthorizationRule,
    allowed: tuple[str, ...] = (OWNER,),
    allowlist: tuple[str, ...] = (),
    may_loosen: tuple[str, ...] = ("*",),
) -> Config:
    return Config(
        slack=SlackSection(allowed_users=allowed),
        authorization=AuthorizationSection(rules=rules, allowlist=allowlist, may_loosen=may_loosen),
    )


@pytest.mark.parametrize(
    ("user", "named", "allowed"),
    [
        (OWNER, (), False),
        (OWNER, (OWNER,), True),
        (OWNER, ("*",), True),
        (GUEST, ("*",), False),
        (GUEST, (GUEST,), False),
        (OPERATOR, (), True),
    ],
)
def test_only_who_is_named_may_work_in_a_mode_that_asks_less(
    user: str, named: tuple[str, ...], allowed: bool
) -> None:
    where = Where(config(may_loosen=named), "C1", ("claude",))
    assert may(admitted(user), "loosen", where).allowed is allowed


def paths(user: str) -> list[tuple[Event, Request]]:
    """The same person on every path an event can take."""
    return [
        (posted(channel="C1", ref="1.1", user=user, text="hello"), TALK),
        (posted(channel="C1", ref="1.2", user=user, text="hello", thread="1.1"), TALK),
        (posted(channel="C1", ref="1.3", user=user, text="!status"), Command(name="status")),
        (posted(channel="C1", ref="1.7", user=user, text="", files=(File(id="F1"),)), Prompt(text="")),
        (posted(channel="C1", ref="1.8", user=user, text="hello", origin="schedule"), TALK),
        (edited(channel="C1", ref="1.1", user=user, text="hello", edit="1.4"), TALK),
        (deleted(channel="C1", ref="1.1", user=user), NoRequest()),
        (
            slashed(channel="C1", user=user, command="/butler", text="", invocation="t"),
            Command(name="help"),
        ),
        (
            clicked(
                channel="C1",
                user=user,
                message="1.5",
                action_id="codebutler.stop",
                value="x",
                press="1.6",
            ),
            NoRequest(),
        ),
    ]


@pytest.mark.parametrize(("event", "request_"), paths(OWNER))
def test_the_owner_is_let_in_on_every_path(event: Event, request_: Request) -> None:
    assert decide_request(config(), event, request_).allowed


@pytest.mark.parametrize(("event", "request_"), [*paths(GUEST), *paths("")])
def test_a_stranger_is_refused_on_every_path_and_told_why(event: Event, request_: Request) -> None:
    decision = decide_request(config(), event, request_)
    assert not decision.allowed
    assert "not authorized" in decision.message


@pytest.mark.parametrize(("event", "request_"), paths(OWNER))
def test_an_empty_list_of_users_means_nobody(event: Event, request_: Request) -> None:
    assert not decide_request(config(allowed=()), event, request_).allowed


def test_a_star_in_a_rule_means_the_allowed_users_and_nobody_else() -> None:
    rule = AuthorizationRule(channels=("C1",), users=("*",), allowed_prefixes=("claude",))
    talk = [posted(channel="C1", ref="1.1", user=user, text="hello") for user in (OWNER, GUEST)]
    decisions = [decide_request(config(rule), event, TALK).allowed for event in talk]
    assert decisions == [True, False]


def test_a_rule_limits_the_channel_and_the_prefix() -> None:
    rule = AuthorizationRule(channels=("C1",), users=(OWNER,), allowed_prefixes=("claude",))
    here = posted(channel="C1", ref="1.1", user=OWNER, text="hello")
    there = posted(channel="C2", ref="1.1", user=OWNER, text="hello")
    assert decide_request(config(rule), here, TALK).allowed
    assert not decide_request(config(rule), there, TALK).allowed
    refusal = decide_request(config(rule), here, Prompt(text="ls", prefix="run"))
    assert not refusal.allowed
    # Who is known is not told to become known.
    assert "not authorized to use `run:` here" in refusal.message
    assert "allowedUsers" not in refusal.message


@pytest.mark.parametrize(("origin", "allowed"), [("local", True), ("chat", False)])
def test_a_press_at_the_terminal_is_the_owners(origin: Origin, allowed: bool) -> None:
    press = clicked(
        channel="C1",
        user=OPERATOR,
        message="1.5",
        action_id="codebutler.allow",
        value="x",
        press="1.6",
        origin=origin,
    )
    strict = config(AuthorizationRule(channels=("C2",), users=("U2",), allowed_prefixes=("kimi",)))
    assert decide_request(strict, press, NoRequest()).allowed is allowed


def test_the_owners_rules_do_not_bind_the_owner() -> None:
    strict = config(AuthorizationRule(channels=("C1",), users=(GUEST,), allowed_prefixes=("kimi",)))
    where = Where(strict, "C1", ("claude",))
    assert may(admitted(OPERATOR), "decide", where).allowed
    assert not may(admitted(GUEST), "decide", where).allowed


@pytest.mark.parametrize(("origin", "allowed"), [("local", True), ("schedule", True), ("chat", False)])
def test_the_operator_of_this_machine_needs_no_entry(origin: Origin, allowed: bool) -> None:
    """From the control socket, a job of a file or a hook; what comes from Slack is never the operator's."""
    wish = posted(channel="C1", ref="1.1", user=OPERATOR, text="hello", origin=origin)
    assert decide_request(config(allowed=()), wish, TALK).allowed is allowed


@pytest.mark.parametrize(
    "command",
    [
        *("rm -rf /", "rm -rf --no-preserve-root /", "rm -r -f ~/", "rm -Rf /*", "make; rm -rf $HOME"),
        *("sudo shutdown now", "make && reboot", "halt", "systemctl poweroff"),
        *("mkfs.ext4 /dev/sda", "dd if=a of=/dev/sda", "echo x >/dev/sda"),
    ],
)
def test_the_blocklist_catches_accidents_even_the_operators(command: str) -> None:
    local = posted(channel="C1", ref="1.1", user="operator", text=command, origin="local")
    decision = decide_request(config(), local, Prompt(text=command, prefix="run"))
    assert not decision.allowed
    assert "blocklist" in decision.message


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
    event = posted(channel="C1", ref="1.1", user=OWNER, text=command)
    assert decide_request(config(), event, Prompt(text=command, prefix="run")).allowed


def test_an_allowlist_admits_only_what_it_names() -> None:
    only_make = config(allowlist=(r"^make( |$)",))
    event = posted(channel="C1", ref="1.1", user=OWNER, text="x")
    assert decide_request(only_make, event, Prompt(text="make test", prefix="run")).allowed
    assert not decide_request(only_make, event, Prompt(text="ls", prefix="run")).allowed


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
    event = posted(channel="C1", ref="1.1", user=OWNER, text="x")
    with_shell = msgspec.structs.replace(config(), commands=(SHELL,))
    decision = decide_request(with_shell, event, Prompt(text=text, prefix="sh"))
    assert decision.allowed is allowed


def test_what_is_no_shell_is_not_judged_as_one() -> None:
    event = posted(channel="C1", ref="1.1", user=OWNER, text="x")
    rules = (CommandRule(prefix="py", binary="python3", mode="interactive"),)
    with_python = msgspec.structs.replace(config(), commands=rules)
    talk = Prompt(text="rm -rf /", prefix="py")
    assert decide_request(with_python, event, talk).allowed
    assert decide_request(with_python, event, Prompt(text="rm -rf /")).allowed


@pytest.mark.parametrize(
    "hostile",
    ["rm -" + "r" * 1900, "dd " * 600, ":(){" * 450, "rm " * 13_000, "-rm " * 499, "rm -r " * 300],
)
def test_judging_a_command_takes_little_time(hostile: str) -> None:
    event = posted(channel="C1", ref="1.1", user=OWNER, text="x")
    started_s = time.thread_time()
    decide_request(config(), event, Prompt(text=hostile, prefix="run"))
    assert time.thread_time() - started_s < 1


def test_a_command_too_long_to_judge_is_refused() -> None:
    event = posted(channel="C1", ref="1.1", user=OWNER, text="x")
    decision = decide_request(config(), event, Prompt(text="true " * 1000, prefix="run"))
    assert not decision.allowed
    assert "longer than" in decision.message


BOTH = (
    AuthorizationRule(channels=("C1",), users=(OWNER,), allowed_prefixes=("claude",)),
    AuthorizationRule(channels=("C2",), users=("*",), allowed_prefixes=("kimi", "run")),
)
ANYBODY_HERE = {"see", "command", "press", "retract"}
"""Takes some rule for the channel; all else takes one for the agent."""
USES_AN_AGENT = {
    "ask",
    "skill",
    "decide",
    "answer",
    "type",
    "continue",
    "undo",
    "commit",
    "merge",
    "remember",
    "push",
    "loosen",
    "move",
}


def test_every_action_is_one_that_this_page_tries() -> None:
    assert (
        set(ACTIONS)
        == {*ANYBODY_HERE, *USES_AN_AGENT, "amend", "new"}
        == {name for part in get_args(Action) for name in get_args(part)}
    )


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    ("user", "channel", "prefixes", "here", "agent"),
    [
        (OWNER, "C1", ("claude",), True, True),
        (OWNER, "C1", ("native", "claude"), True, True),
        (OWNER, "C1", ("kimi",), True, False),
        (OWNER, "C1", ANY_AGENT, True, True),
        (OWNER, "C2", ("kimi",), True, True),
        (OWNER, "C3", ("claude",), False, False),
        (OWNER, "C3", ANY_AGENT, False, False),
        ("U0OTHER", "C2", ("kimi",), True, True),
        ("U0OTHER", "C1", ("claude",), False, False),
        (GUEST, "C1", ("claude",), False, False),
        (GUEST, "C2", ANY_AGENT, False, False),
        ("", "C2", ("kimi",), False, False),
        (OPERATOR, "C2", ("kimi",), False, False),
    ],
)
def test_rules_are_asked_of_every_action(
    action: Action, user: str, channel: str, prefixes: Prefixes, here: bool, agent: bool
) -> None:
    ruled = config(*BOTH, allowed=(OWNER, "U0OTHER"))
    decision = may(Person(user), action, Where(ruled, channel, prefixes, author=user))
    is_known = user in (OWNER, "U0OTHER")
    special = {"amend": is_known, "new": False}
    assert decision.allowed is special.get(action, here if action in ANYBODY_HERE else agent)
    assert decision.is_stranger is not is_known
    assert bool(decision.message) is not decision.allowed


@pytest.mark.parametrize(
    ("allow", "user", "expected"),
    [
        ((), OWNER, False),
        ((OWNER,), OWNER, True),
        ((OWNER,), "U0OTHER", False),
        (("*",), "U0OTHER", True),
        (("*",), GUEST, False),
        ((GUEST,), GUEST, False),
    ],
)
def test_repositories_are_made_by_those_who_are_listed_and_allowed(
    allow: tuple[str, ...], user: str, expected: bool
) -> None:
    listed = msgspec.structs.replace(
        config(*BOTH, allowed=(OWNER, "U0OTHER")), new_repos=NewReposSection(allow=allow)
    )
    assert may(Person(user), "new", Where(listed, "C9")).allowed is expected


@pytest.mark.parametrize("action", ACTIONS)
def test_the_owner_is_bound_by_no_rule_and_by_the_patterns(action: Action) -> None:
    owner = Person(OPERATOR, is_owner=True)
    ruled = config(*BOTH, allowed=())
    assert may(owner, action, Where(ruled, "C9", ("run",), "ls", author=OPERATOR)).allowed
    denied = may(owner, action, Where(ruled, "C9", ("run",), "rm -rf /", author=OPERATOR))
    assert denied.allowed is (action not in ("ask", "type"))


@pytest.mark.parametrize("action", ACTIONS)
def test_an_empty_list_of_users_lets_nobody_do_anything(action: Action) -> None:
    assert not may(
        admitted(OWNER), action, Where(config(allowed=()), "C1", ("claude",), author=OWNER)
    ).allowed


def test_what_is_not_in_the_table_is_refused() -> None:
    owner = Person(OPERATOR, is_owner=True)
    assert not may(owner, "own", Where(config(), "C1", ("claude",), author=OPERATOR)).allowed  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("action", sorted(USES_AN_AGENT))
def test_an_action_that_names_no_agent_is_refused(action: Action) -> None:
    assert not may(admitted(OWNER), action, Where(config(), "C1")).allowed


@pytest.mark.parametrize(("author", "allowed"), [(OWNER, True), ("U0OTHER", False), ("", False)])
def test_words_are_amended_by_whoever_said_them(author: str, allowed: bool) -> None:
    assert may(admitted(OWNER), "amend", Where(config(), "C1", author=author)).allowed is allowed

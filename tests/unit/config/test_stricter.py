"""Of two configurations the stricter rules: judged by what really asks them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codebutler.config.chats import SlackSection
from codebutler.config.load import JsonObject, Layer, default_layer, leaves, merge
from codebutler.config.permission import Where, admitted, may
from codebutler.config.programs import objection
from codebutler.config.schema import Config
from codebutler.config.trust import _ORDERS, LIMIT_DEFAULTS, is_plain, stricter
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.conversation.approvals import needed_for
from codebutler_worker.egress.hosts import HostPort, Hosts
from codebutler_worker.egress.policy import for_agents, for_commands
from codebutler_worker.sandbox.docker import DEFAULT
from codebutler_worker.sandbox.limits import USUAL as ON_THIS_MACHINE
from codebutler_worker.sandbox.limits import configured

HOSTS = ["example.org", "*.example.org", "a.example.org", "a.example.org:8443", "*.a.example.org", "10.0.0.5:3000",
         "Example.org", "*.example.org:80", "10.0.0.5", "[::1]:80"]  # fmt: skip
PLACES = [HostPort(host, port) for host in ("example.org", "a.example.org", "b.a.example.org", "10.0.0.5", "::1")
          for port in (80, 443, 3000, 8443)]  # fmt: skip
USERS, CHANNELS, PREFIXES = ["U1A", "U2A", "U3A"], ["C1A", "C2A"], ["claude", "run", "kimi"]
COMMANDS = ["rm -rf /", "git push", "ls", "make", "npm ci", ""]
PATTERNS = ["git push", "^ls$", "rm .*", "make|npm", "(a|b)+", "^git"]
CALLS = [("Bash", {"command": command}) for command in COMMANDS]
permission = st.sampled_from(["plan", "ask", "acceptEdits", "bypassPermissions"])
some = st.none() | st.integers(1, 3)


def lists(words: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(words), max_size=3, unique=True)


rule = st.fixed_dictionaries(
    {"channels": lists(CHANNELS), "users": lists([*USERS, "*"]), "allowedPrefixes": lists(PREFIXES)}
)
limit = st.fixed_dictionaries({}, optional={"usdPerDay": some, "turnsPerDay": some})
configurations = st.fixed_dictionaries(
    {},
    optional={
        "slack": st.fixed_dictionaries({}, optional={"allowedUsers": lists(USERS)}),
        "agent": st.fixed_dictionaries({}, optional={"queuePerUser": st.integers(0, 3)}),
        "claude": st.fixed_dictionaries(
            {}, optional={"permissionMode": permission, "projectSettings": st.booleans()}
        ),
        "kimi": st.fixed_dictionaries({}, optional={"permissionMode": permission}),
        "native": st.fixed_dictionaries(
            {},
            optional={
                "permissionMode": permission,
                "web": st.booleans(),
                "strict": st.booleans(),
                "allowedPrograms": lists(["git", "ls", "make"]),
                "maxUsd": some,
                "maxTokens": some,
            },
        ),
        "sandbox": st.fixed_dictionaries(
            {},
            optional={
                "mode": st.sampled_from(["auto", "bwrap", "docker", "seatbelt", "none"]),
                "network": st.sampled_from(["auto", "hosts", "open"]),
                "commandNetwork": st.sampled_from(["auto", "none", "hosts", "open"]),
                "hosts": lists(HOSTS),
                "readable": lists(["~/a", "~/a/b", "/opt/x"]),
                "memoryMb": st.none() | st.sampled_from([0, 100, 512, 1000, 4096, 9999]),
                "processes": st.none() | st.sampled_from([0, 10, 128, 300, 512, 9999]),
                "cpus": st.none() | st.sampled_from([0, 0.5, 1, 4]),
                "fileSizeGb": st.integers(0, 3),
            },
        ),
        "authorization": st.fixed_dictionaries(
            {},
            optional={
                "rules": st.lists(rule, max_size=3),
                "blocklist": lists(PATTERNS),
                "allowlist": lists(PATTERNS),
            },
        ),
        "approvals": st.fixed_dictionaries(
            {"quorum": st.dictionaries(st.sampled_from(["git push", "rm", "."]), st.integers(1, 4))}
        ),
        "memory": st.fixed_dictionaries({}, optional={"review": st.sampled_from(["auto", "ask", "off"])}),
        "skills": st.fixed_dictionaries({}, optional={"disabled": lists(["a", "b"])}),
        "budget": st.fixed_dictionaries({}, optional={"repo": limit, "user": limit}),
    },
)


def whole(layer: JsonObject) -> JsonObject:
    return merge([default_layer(), Layer("x", layer)]).values


def typed(values: JsonObject) -> Config:
    return msgspec.convert(values, Config)


def reached(config: Config, walls: str) -> set[tuple[str, HostPort]]:
    """Who gets where, behind such walls."""
    found = set()
    for who, outlet in (("agents", for_agents), ("commands", for_commands)):
        try:
            way = outlet(config.sandbox, walls, {})
        except SandboxUnavailableError:
            continue
        open_ = way.kind == "open"
        listed = Hosts(way.hosts if way.kind == "hosts" else ())
        found |= {(who, place) for place in PLACES if open_ or listed.allow(place)}
        found |= {(who, HostPort("elsewhere.example", 443))} if open_ else set()
    return found


def allowed(config: Config) -> set[tuple[Any, ...]]:
    """What people may ask for, and which commands."""
    ruled = msgspec.structs.replace(config, slack=SlackSection(allowed_users=tuple(USERS)))
    asked: set[tuple[Any, ...]] = {
        (user, channel, prefix)
        for user in USERS
        for channel in CHANNELS
        for prefix in [*PREFIXES, None]
        if _may(user, Where(ruled, channel, () if prefix is None else (prefix,)))
    }
    asked |= {("user", user) for user in config.slack.allowed_users}
    return asked | {("command", command) for command in COMMANDS if not objection(config, command)}


def _may(user: str, where: Where) -> bool:
    return may(admitted(user), "skill" if where.prefixes else "see", where).allowed


def bounded(config: Config) -> dict[str, float]:
    """Numbers of which a larger one is looser."""
    none = float("inf")
    modes = ("plan", "ask", "acceptEdits", "bypassPermissions")
    found: dict[str, float] = {
        "queue": config.agent.queue_per_user or none,
        "settings": config.claude.project_settings,
        "web": config.native.web,
        "usd": none if config.native.max_usd is None else config.native.max_usd,
        "tokens": none if config.native.max_tokens is None else config.native.max_tokens,
        "walls": config.sandbox.mode == "none",
        "review": ("off", "ask", "auto").index(config.memory.review),
        **{
            f"mode {name}": modes.index(getattr(config, name).permission_mode)
            for name in ("claude", "kimi", "native")
        },
        **{f"people for {call}": -needed_for(config.approvals.quorum, *call) for call in CALLS},
    }
    for usual in (ON_THIS_MACHINE, DEFAULT):
        limits = configured(config.sandbox, usual)
        for name in ("memory_bytes", "processes", "file_bytes", "cpus"):
            found[f"{name} {usual}"] = getattr(limits, name) or none
    for whose in ("repo", "user"):
        budget = getattr(config.budget, whose)
        for name in ("usd_per_day", "turns_per_day"):
            found[f"{whose} {name}"] = none if getattr(budget, name) is None else getattr(budget, name)
    return found


def programs(config: Config) -> set[str]:
    every, native = {"git", "ls", "make", "rm"}, config.native
    return every & set(native.allowed_programs) if native.strict else every


@settings(max_examples=200)
@given(configurations, configurations)
def test_the_result_is_never_looser_than_either(ours: JsonObject, theirs: JsonObject) -> None:
    result = typed(stricter(whole(ours), whole(theirs)))
    for number, one in enumerate((typed(whole(ours)), typed(whole(theirs)))):
        for walls in ("bwrap", "docker", "seatbelt"):
            assert reached(result, walls) <= reached(one, walls)
        bounds = bounded(one)
        assert {name: value for name, value in bounded(result).items() if value > bounds[name]} == {}
        assert programs(result) <= programs(one)
        assert set(result.sandbox.readable) <= set(one.sandbox.readable)
        assert set(result.skills.disabled) >= set(one.skills.disabled)
        if number == 0 or all(map(is_plain, (*one.authorization.blocklist, *one.authorization.allowlist))):
            assert allowed(result) <= allowed(one)


@given(configurations)
def test_of_twice_the_same_it_is_the_same(layer: JsonObject) -> None:
    values = whole(layer)
    assert typed(stricter(values, values)) == typed(values)


@given(configurations, configurations)
def test_what_has_no_order_is_the_trusted_ones(ours: JsonObject, theirs: JsonObject) -> None:
    loose = {
        "claude": {"binary": "/tmp/evil", "extraArgs": ["--evil"]},
        "kimi": {"baseUrl": "http://evil.example"},
    }
    claimed = merge([default_layer(), Layer("x", theirs), Layer("y", loose)]).values
    result = typed(stricter(whole(ours), claimed))
    assert (result.claude.binary, result.claude.extra_args) == ("claude", ())
    assert result.kimi.base_url == Config().kimi.base_url
    assert result.commands == typed(whole(ours)).commands


def test_every_key_with_an_order_exists() -> None:
    paths = {path for path, _ in leaves(msgspec.to_builtins(Config()))} | {("approvals", "quorum")}
    assert set(_ORDERS) <= paths


def test_what_limits_are_without_a_word_is_what_they_are() -> None:
    usual = [ON_THIS_MACHINE, DEFAULT]
    for name, figures in (
        ("memoryMb", [each.memory_bytes // 2**20 for each in usual]),
        ("processes", [each.processes for each in usual]),
        ("cpus", [each.cpus for each in usual]),
    ):
        assert LIMIT_DEFAULTS[name] == (
            min(figure for figure in figures if figure),
            0 if 0 in figures else max(figures),
        )


@pytest.mark.parametrize("pattern", ["a{9}", ".{1000}x", "(a|b)*" * 40])
def test_a_strangers_pattern_that_may_take_for_ever_is_not_tried(pattern: str) -> None:
    claimed = {"authorization": {"blocklist": [pattern], "allowlist": [pattern]}}
    result = typed(stricter(whole({}), whole(claimed)))
    assert pattern not in result.authorization.blocklist
    assert result.authorization.allowlist == (r"[^\s\S]",)


def test_a_list_of_hosts_narrows_an_open_network() -> None:
    ours = {"sandbox": {"network": "open", "commandNetwork": "open"}}
    theirs = {"sandbox": {"network": "hosts", "commandNetwork": "none", "hosts": ["pypi.org"]}}
    section = typed(stricter(whole(ours), whole(theirs))).sandbox
    assert (section.network, section.command_network, section.hosts) == ("hosts", "none", ("pypi.org",))

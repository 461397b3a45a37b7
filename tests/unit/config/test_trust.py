from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.config.load import DEFAULT, Layer, default_layer, leaves, merge, put
from codebutler.config.schema import Config
from codebutler.config.trust import HARMLESS, digest, is_guarded, strip_untrusted


@pytest.mark.parametrize(
    "key",
    [
        "sandbox.mode",
        "sandbox.network",
        "sandbox.commandNetwork",
        "sandbox.hosts",
        "authorization.rules",
        "authorization.blocklist",
        "authorization.allowlist",
        "slack.allowedUsers",
        "slack.botToken",
        "slack.appToken",
        "slack.apiBaseUrl",
        "slack.channelID",
        "slack.listenChannels",
        "claude.permissionMode",
        "claude.projectSettings",
        "claude.binary",
        "claude.extraArgs",
        "kimi.binary",
        "kimi.apiKey",
        "kimi.baseUrl",
        "native.baseUrl",
        "native.apiKey",
        "openai.apiKey",
        "openai.baseUrl",
        "tavily.baseUrl",
        "commands",
        "budget.repo.usdPerDay",
        "dashboard.host",
        "envelope.promptFile",
        "a.key.nobody.has.thought.of",
    ],
)
def test_what_loosens_safety_is_guarded(key: str) -> None:
    assert is_guarded(key)


def test_every_harmless_key_exists() -> None:
    keys = {".".join(path) for path, _ in leaves(msgspec.to_builtins(Config()))}

    assert keys >= HARMLESS


def test_stripping_keeps_the_harmless_and_names_the_rest() -> None:
    layer = {
        "slack": {"channelID": "C0123", "channelName": "x"},
        "claude": {"maxTurns": 3, "permissionMode": "bypassPermissions"},
        "commands": [{"prefix": "x", "binary": "x"}],
        "budget": {"repo": {"usdPerDay": 1000}},
    }

    kept, ignored = strip_untrusted(layer)

    assert kept == {"slack": {"channelName": "x"}, "claude": {"maxTurns": 3}}
    assert ignored == ("budget.repo.usdPerDay", "claude.permissionMode", "commands", "slack.channelID")


PATHS = sorted(path for path, _ in leaves(msgspec.to_builtins(Config())))


@given(st.dictionaries(st.sampled_from(PATHS), st.integers()))
def test_an_untrusted_file_never_decides_a_guarded_key(chosen: dict[tuple[str, ...], int]) -> None:
    layer: dict[str, object] = {}
    for path, value in chosen.items():
        put(layer, path, value)

    kept, ignored = strip_untrusted(layer)

    merged = merge([default_layer(), Layer("repo", kept)])
    assert {key for key, source in merged.provenance.items() if source != DEFAULT} <= HARMLESS
    assert {".".join(path) for path in chosen} - HARMLESS == set(ignored)


def test_the_digest_is_of_the_bytes() -> None:
    assert digest(b"{}") == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert digest(b"{} ") != digest(b"{}")

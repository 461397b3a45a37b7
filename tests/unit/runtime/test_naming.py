"""Conversations and agents by name."""

from __future__ import annotations

import pytest

from codebutler.config.permission import ANY_AGENT
from codebutler.config.schema import AgentSection, Config
from codebutler_worker.runtime.turns import agent_name, conversation_id, prefixes_of, tag_of


def test_a_thread_is_a_conversation_unless_the_channel_is() -> None:
    assert conversation_id(Config(), "C1", "100.1") == "C1:100.1"
    assert conversation_id(Config(agent=AgentSection(scope="channel")), "C1", "100.1") == "C1:"


@pytest.mark.parametrize(
    ("prefix", "agent"),
    [(None, "kimi"), ("claude", "claude"), ("agent", "native"), ("run", "run"), ("rehearsal", "rehearsal")],
)
def test_a_prefix_names_an_agent(prefix: str | None, agent: str) -> None:
    assert agent_name(Config(agent=AgentSection(default="kimi")), prefix) == agent


def test_undoing_is_any_agents() -> None:
    assert prefixes_of("undo") == ANY_AGENT
    assert prefixes_of("native") == ("native", "agent")


@pytest.mark.parametrize(
    ("agent", "tag"),
    [
        ("claude", "CLD"),
        ("rehearsal", "CLD"),
        ("kimi", "KMI"),
        ("native", "NAT"),
        ("opencode", "OPE"),
        ("run", "INF"),
        ("undo", "INF"),
        ("errand", "AGT"),
        ("info", "AGT"),
        ("g5", "AGT"),
        ("ünï", "AGT"),
    ],
)
def test_each_agent_has_its_tag_in_the_log(agent: str, tag: str) -> None:
    assert tag_of(Config(), agent) == tag

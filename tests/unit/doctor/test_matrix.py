"""The table of what agents can do, and the data behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.cli.doctor import agent_tables
from codebutler.config.schema import CommandRule, Config
from codebutler.protocol.capabilities import CAPABILITIES, AgentResult, Capability, Cell, CellState
from codebutler_worker.agents.survey import SUPPORTED, dotted
from codebutler_worker.trials.matrix import STEPS, announcement, live_finding
from codebutler_worker.trials.turns import TURNS, subject_of

ROOT = Path(__file__).parents[3]


def row(agent: str, **states: CellState) -> AgentResult:
    def cell(name: Capability) -> Cell:
        state = states.get(name, "yes")
        missing = state != "yes"
        return Cell(
            capability=name, state=state, text="it saw " * 20 if missing else "", fix="Do this." * missing
        )

    return AgentResult(agent=agent, repos=("shop",), version="1.2.3", cells=tuple(map(cell, CAPABILITIES)))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_table_fits_and_says_everything(width: int) -> None:
    rows = [row(f"agent-number-{number}", image="no", mcp="not supported") for number in range(8)]
    lines = list(agent_tables(rows, width))
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for each in rows:
        assert each.agent in text
    assert " ".join(text.split()).count("image: does not work") == 8
    assert " ".join(text.split()).count("Do this.") == 16
    tables = sum(line.startswith("Agents") for line in lines)
    assert tables == {40: 8, 80: 3, 200: 1}[width]


def test_a_missing_capability_is_a_warning_and_no_answer_a_failure() -> None:
    assert live_finding(row("claude")).level == "ok"
    assert live_finding(row("claude", image="not supported", mcp="not tried")).level == "ok"
    missing = live_finding(row("claude", image="no"))
    assert (missing.level, "9 of 10" in missing.text, "image" in missing.text) == ("warn", True, True)
    assert live_finding(row("claude", answer="no")).level == "FAIL"


def test_every_turn_is_named_and_counted_before_it_is_run() -> None:
    assert STEPS.keys() == TURNS.keys()
    assert frozenset().union(*TURNS.values()) == frozenset(CAPABILITIES)
    forgets = CommandRule(prefix="ask", binary="ask", mode="headless")
    remembers = CommandRule(prefix="ask", binary="ask", args=("{session}",), mode="headless")
    assert len(subject_of(Config(), "claude").turns) == 9
    assert subject_of(Config(commands=(forgets,)), "ask").turns == ("remember", "write", "stop", "image")
    assert "recall" in subject_of(Config(commands=(remembers,)), "ask").turns
    named = CommandRule(prefix="claude", binary="claude", mode="headless")
    assert subject_of(Config(commands=(named,)), "claude").kind == "claude"
    speaks = CommandRule(prefix="kimi", binary="other", args=("acp",), mode="acp")
    assert subject_of(Config(commands=(speaks,)), "kimi").kind == "acp"
    told = announcement((subject_of(Config(), "claude"), subject_of(Config(), "rehearsal")))
    assert "10 short runs (claude 9, rehearsal 1)" in told


def test_the_page_has_the_versions_of_the_code() -> None:
    page = (ROOT / "docs" / "reference" / "doctor.md").read_text()
    for known in SUPPORTED.values():
        assert f"{known.name} {dotted(known.floor)} to {dotted(known.tested)}" in page

"""Which agents race, and on what task."""

from __future__ import annotations

import pytest

from codebutler.config.schema import AgentSection, CommandRule, Config
from codebutler_worker.agents.survey import Survey
from codebutler_worker.commands.race import choose_racers, parse_race

CODEX = CommandRule(prefix="codex", binary="codex", mode="headless")
CONFIG = Config(commands=(CODEX,))
TASK = "fix the bug: crash at start"


@pytest.mark.parametrize(
    ("argument", "named", "task"),
    [
        ("fix the bug", (), "fix the bug"),
        (TASK, (), TASK),
        ("add tests: for login", (), "add tests: for login"),
        (f"claude kimi: {TASK}", ("claude", "kimi"), TASK),
        (f"Kimi, Codex: {TASK}", ("kimi", "codex"), TASK),
        (f"claude and agent:\n{TASK}", ("claude", "native"), TASK),
        (f"claude vs kimi: {TASK}", ("claude", "kimi"), TASK),
        (f"kimi: {TASK}", ("kimi",), TASK),
        (f"claude klaude: {TASK}", ("claude", "klaude"), TASK),
        # A program is no agent.
        ("run: make", (), "run: make"),
    ],
)
def test_agents_are_named_before_a_colon(argument: str, named: tuple[str, ...], task: str) -> None:
    assert parse_race(argument, CONFIG) == (named, task)


def ready(*names: str) -> tuple[Survey, ...]:
    return tuple(Survey(name, ready=True) for name in names)


def race(
    *wanted: str, surveys: tuple[Survey, ...], denied: str = "", default: str = "claude"
) -> tuple[str, ...]:
    config = Config(commands=(CODEX,), agent=AgentSection(default=default))
    agents, refusal = choose_racers(config, wanted, surveys, lambda name: name != denied)
    assert bool(agents) != bool(refusal)
    return agents


def test_without_names_the_default_one_races_with_another_that_is_ready() -> None:
    everybody = ready("agent", "rehearsal", "claude", "codex", "kimi", "image")
    assert race(surveys=everybody) == ("claude", "codex")
    assert race(surveys=everybody, denied="codex") == ("claude", "kimi")
    assert race(surveys=everybody, default="kimi") == ("kimi", "claude")
    assert race(surveys=ready("agent", "claude")) == ("claude", "native")


def test_one_name_races_with_the_default_one() -> None:
    assert race("kimi", surveys=ready("agent", "claude", "kimi")) == ("kimi", "claude")
    assert race("claude", surveys=ready("agent", "claude", "kimi")) == ("claude", "kimi")
    without = (Survey("claude", ready=False), *ready("kimi", "agent"))
    assert race("kimi", surveys=without) == ("kimi", "native")


@pytest.mark.parametrize("wanted", [(), ("claude", "kimi")])
def test_nobody_races_alone_or_with_one_that_is_not_ready(wanted: tuple[str, ...]) -> None:
    assert race(*wanted, surveys=(*ready("claude"), Survey("kimi", ready=False, note="install it"))) == ()


def test_why_not_is_told() -> None:
    surveys = (*ready("claude"), Survey("kimi", ready=False, note="install it"))
    assert choose_racers(CONFIG, ("claude", "kimi"), surveys, bool)[1].startswith(
        "`kimi` is not ready here: install it."
    )
    assert "only `claude` is ready here" in choose_racers(CONFIG, (), surveys, bool)[1]

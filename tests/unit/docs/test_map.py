"""The map for newcomers names only what is there, and every link of the documentation leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


def test_every_path_of_the_map_exists() -> None:
    named = re.findall(r"^\| (.+?) \|", (ROOT / "AGENTS.md").read_text(), re.MULTILINE)
    paths = [path for cell in named for path in re.findall(r"`([^`]+)`", cell)]
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_key_of_the_configuration_is_documented() -> None:
    import msgspec

    from codebutler.config.schema import Config

    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    defaults = msgspec.to_builtins(Config())
    keys = [
        f"{section}.{key}" if isinstance(values, dict) else section
        for section, values in defaults.items()
        for key in (values if isinstance(values, dict) else [""])
    ]
    assert [key for key in keys if f"`{key}`" not in page] == []


def test_what_a_changed_file_may_set_is_documented() -> None:
    from codebutler.config.trust import _ORDERS, HARMLESS

    page = (ROOT / "docs" / "reference" / "configuration.md").read_text().partition("**Trust.**")[2]
    told, section = {f"{agent}.permissionMode" for agent in ("claude", "kimi", "native")}, ""
    for name in re.findall(r"`([a-zA-Z]*\.[a-zA-Z]+)`", page):
        first, _, last = name.partition(".")
        section = first or section
        told.add(f"{section}.{last}")
    ordered = {".".join(path) for path in _ORDERS if path[0] != "budget"}
    assert sorted((HARMLESS | ordered) - told) == []


def test_every_variable_of_the_environment_is_documented() -> None:
    from codebutler.config.resolve import VARIABLES

    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    assert [name for name in VARIABLES if f"`{name}`" not in page] == []


def test_every_command_is_documented() -> None:
    from codebutler.cli.app import COMMANDS

    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert [row.name for row in COMMANDS if f"`codebutler {row.name}" not in page] == []


def test_every_proof_that_the_reliability_page_names_exists() -> None:
    page = (ROOT / "docs" / "explanation" / "reliability.md").read_text()
    suites = "\n".join(path.read_text() for path in ROOT.glob("tests/**/test_*.py"))
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", page))
    names = set(re.findall(r"`(test_\w+)`", page))
    assert len(files) > 20
    assert [path for path in files if not (ROOT / path).exists()] == []
    assert [name for name in names if f"def {name}(" not in suites] == []
    cases = set(re.findall(r"\b([BCDEH]\d\d)\b", page))
    tested = set(re.findall(r"_([bcdeh]\d\d)(?=_)", " ".join(re.findall(r"def (test_\w+)", suites))))
    assert {case.lower() for case in cases} - tested == set()

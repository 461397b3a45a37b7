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

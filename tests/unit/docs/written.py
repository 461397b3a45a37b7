"""What the documentation takes from the code, written into its pages: ``make docs``."""

from __future__ import annotations

import re
from pathlib import Path

from codebutler.domain.commands import as_table
from tests.unit.docs.pages import ROOT
from tests.unit.docs.rooms import PARENT, WORKER, picture

COMMANDS = ROOT / "docs" / "reference" / "chat.md"
ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"


def written(page: Path) -> str:
    """The page's text with the tables and pictures that the code decides as they are now."""
    text = page.read_text()
    if page == COMMANDS:
        return re.sub(r"(?<=\n## Commands\n\n)(\|.*\n)+", lambda _: f"{as_table()}\n", text)
    for heading, package in (("The parent's rooms", PARENT), ("The worker's rooms", WORKER)):
        text = re.sub(rf"(?<=\n### {heading}\n\n)```mermaid\n.*?```", picture(package), text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    for each in (COMMANDS, ARCHITECTURE):
        each.write_text(written(each))

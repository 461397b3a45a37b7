"""What the documentation takes from the code, written into its pages: ``make docs``."""

from __future__ import annotations

import re
from pathlib import Path

from codebutler.domain.command_help import as_table
from codebutler.platform.macos import UNTRIED
from tests.unit.docs.man import PAGE, manual
from tests.unit.docs.pages import ROOT
from tests.unit.docs.rooms import PARENT, WORKER, picture
from tests.unit.docs.way import sequence

COMMANDS = ROOT / "docs" / "reference" / "chat.md"
MAC = ROOT / "docs" / "how-to" / "run-on-a-mac.md"
ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"


def written(page: Path) -> str:
    """The page's text with the tables and pictures that the code decides as they are now."""
    text = page.read_text()
    if page == COMMANDS:
        return re.sub(r"(?<=\n## Commands\n\n)(\|.*\n)+", lambda _: f"{as_table()}\n", text)
    if page == MAC:
        rows = "".join(f"| {each.part} | {each.checked} |\n" for each in UNTRIED)
        return re.sub(r"(?<=\n\|---\|---\|\n)(\|.*\n)*", lambda _: rows, text)
    for heading, drawn in (
        ("### The parent's rooms", picture(PARENT)),
        ("### The worker's rooms", picture(WORKER)),
        ("## The way of one message", f"{sequence()}\n"),
    ):
        text = re.sub(
            rf"(?<=\n{heading}\n\n)```mermaid\n.*?```(\n\n\| step (\|.*\n)+)?", drawn, text, flags=re.DOTALL
        )
    return text


if __name__ == "__main__":
    for each in (COMMANDS, MAC, ARCHITECTURE):
        each.write_text(written(each))
    PAGE.write_text(manual())

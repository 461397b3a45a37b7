"""What the documentation takes from the code, written into its page: ``make docs``."""

from __future__ import annotations

import re

from codebutler.domain.commands import as_table
from tests.unit.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "chat.md"


def written(page: str) -> str:
    """The page with the table of commands as it is now."""
    return re.sub(r"(?<=\n## Commands\n\n)(\|.*\n)+", lambda _: f"{as_table()}\n", page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))

"""Print a release's notes from the changelog: ``python tests/wheel/notes.py v1.2.3``.

Exits with 1 and a line if the tag, the version in `pyproject.toml` and the changelog do not agree.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main(tag: str, root: Path = ROOT) -> int:
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    if tag != f"v{version}":
        print(f"the tag is {tag}, but pyproject.toml says {version}: tag v{version}", file=sys.stderr)
        return 1
    notes = section((root / "CHANGELOG.md").read_text(), version)
    if not notes:
        print(f"CHANGELOG.md has no notes under '## {version}': rename '## Unreleased'", file=sys.stderr)
        return 1
    print(notes)
    return 0


def section(changelog: str, version: str) -> str:
    """What stands under the heading of ``version``, with or without a date behind it."""
    found = re.search(
        rf"^## {re.escape(version)}( [^\n]*)?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    return found[2].strip() if found else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

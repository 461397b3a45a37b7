"""Which files have tests that need root, so that no other has to be read for them: ``python -m tests.rooted``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

# A mark, a fixture that brings it (`tests/conftest.py`), or one whose cases do (`sandbox/attacker.py`).
NAMED = re.compile(r"mark\.root\b|\bdocker_host\b|\battacker\b")


def may_need_root(file: Path) -> bool:
    """Whether it names root's mark, or what has it."""
    return NAMED.search(file.read_text()) is not None


if __name__ == "__main__":
    root = Path(__file__).parents[1]
    files = (file for file in sorted((root / "tests").rglob("test_*.py")) if may_need_root(file))
    sys.stdout.write(" ".join(str(file.relative_to(root)) for file in files))

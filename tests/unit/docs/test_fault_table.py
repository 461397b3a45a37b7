"""The table of faults names proofs that exist, for each of its rows."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
SUITES = {
    "E": "test_matrix.py",
    "B": "test_bad_input.py",
    "C": "test_catchup.py",
    "D": "test_disk.py",
    "H": "test_hygiene.py",
    "K": "test_clocks.py",
    "N": "test_many.py",
    "S": "test_service.py",
    "V": "test_vanished.py",
}


def test_every_fault_is_injected_by_tests_that_exist() -> None:
    page = (ROOT / "docs" / "explanation" / "reliability.md").read_text()
    for letter, suite in SUITES.items():
        assert f"{letter} `{suite}`" in page
    rows = dict(re.findall(r"^\| (F\d+) \|.*\| ([^|]*) \|$", page, re.MULTILINE))
    assert len(rows) >= 32
    assert list(rows) == [f"F{number}" for number in range(1, len(rows) + 1)]
    suites = list(ROOT.glob("tests/**/test_*.py"))
    tests = {name for suite in suites for name in re.findall(r"def (test_\w+)\(", suite.read_text())}
    files = {suite.name for suite in suites}
    cases = {
        case
        for suite in SUITES.values()
        for case in re.findall(r"^\| ([A-Z]\d\d) \|", (ROOT / "tests/e2e" / suite).read_text(), re.MULTILINE)
    }
    for number, row in rows.items():
        proofs = re.findall(r"`(?:tests/[\w/]+/)?(test_\w+)(\.py)?`", row)
        numbered = _cases(row)
        assert proofs or numbered or "bench" in row, number
        unknown = [
            name for name, suffix in proofs if (name + suffix not in files if suffix else name not in tests)
        ]
        assert unknown == [], number
        assert sorted(numbered - cases) == [], number
        assert [path for path in re.findall(r"`(tests/[\w/]+\.py)`", row) if not (ROOT / path).exists()] == []


def _cases(row: str) -> set[str]:
    """The numbered cases of a row, with those between the ends of a range."""
    found = set(re.findall(r"\b([EBCDHKNSV]\d\d)\b", row))
    for letter, first, last in re.findall(r"\b([EBCDHKNSV])(\d\d) to \1(\d\d)\b", row):
        found |= {f"{letter}{number:02}" for number in range(int(first), int(last) + 1)}
    return found

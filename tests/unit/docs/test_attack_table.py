"""The table of attacks names proofs that exist, in order and without a gap."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_attack_is_tried_by_tests_that_exist() -> None:
    page = (ROOT / "docs" / "explanation" / "security.md").read_text()
    rows = dict(re.findall(r"^\| (A\d+) \|(.*)\|$", page, re.MULTILINE))
    assert len(rows) >= 29
    assert list(rows) == [f"A{number}" for number in range(1, len(rows) + 1)]
    suites = list(ROOT.glob("tests/**/test_*.py"))
    names = {name for suite in suites for name in re.findall(r"def (test_\w+)\(", suite.read_text())}
    files = {suite.name for suite in suites}
    for number, row in rows.items():
        proofs = re.findall(r"`(?:tests/[\w/]+/)?(test_\w+)(\.py)?`", row)
        assert proofs, number
        lost = [
            proof
            for proof, suffix in proofs
            if (proof + suffix not in files if suffix else proof not in names)
        ]
        assert lost == [], number
        assert [path for path in re.findall(r"`(tests/[\w/]+\.py)`", row) if not (ROOT / path).exists()] == []

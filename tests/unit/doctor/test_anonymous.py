"""What of a text may stay in a bug report."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.operations.anonymous import Anonymizer, Phrasebook, read_source

SOURCE = """
from typing import Literal
Mode = Literal["auto", "bwrap"]
class ThingError(Exception): ...
log.warning("the worker of %s ended with %d", name, code)
told = f"{size:.1f} GB free: free some space"
ok("disk", "journal", "written {} times".format(3))
"""


@pytest.fixture
def book(tmp_path: Path) -> Phrasebook:
    (tmp_path / "ours.py").write_text(SOURCE)
    return read_source([tmp_path], ["claude"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("the worker of shop ended with 7", "the worker of <name-1> ended with 7"),
        ("the worker of claude ended with 70000", "the worker of claude ended with <number-1>"),
        ("12.5 GB free: free some space", "12.5 GB free: free some space"),
        ("journal: ThingError('/home/ann')", "journal: ThingError(…)"),
        ("Anna's plans for Friday", "<text-1>"),
        ("ann@example.org", "<address-1>"),
        ("/home/ann/shop", "<path-1>"),
        ("192.168.1.20", "<number-1>"),
        ("1700000000.000100", "<number-1>"),
        ("2.1.328", "2.1.328"),
        ("auto", "auto"),
        ("", ""),
    ],
)
def test_only_what_is_ours_stays(book: Phrasebook, text: str, told: str) -> None:
    assert Anonymizer(book).anonymize(text) == told


def test_one_thing_has_one_pseudonym(book: Phrasebook) -> None:
    secret = Anonymizer(book, {"shop": "<repo-1>"})
    assert secret.anonymize("the worker of shop ended with 7") == "the worker of <repo-1> ended with 7"
    first = secret.anonymize("the worker of ann@example.org ended with 1")
    assert secret.anonymize("ann@example.org") in first
    assert secret.anonymize("ben@example.org") not in first


def test_a_hostile_text_takes_no_time(book: Phrasebook) -> None:
    assert "GB" not in Anonymizer(book).anonymize("GB free: " * 50_000)

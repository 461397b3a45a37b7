"""The page of figures: what stands on it, and that it is a page of the documentation like any other."""

from __future__ import annotations

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

from bench.__main__ import MEASUREMENTS
from bench.figures import Figure, limit
from bench.page import machine, page

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "performance.md"


def test_a_figure_stands_beside_its_limit_and_a_missed_one_is_marked() -> None:
    peer = Figure(what="a | b", measured=3, against=1, against_what="peer", reach=1.5)
    date = datetime(2026, 11, 22, tzinfo=UTC)
    text = page(
        {"ack": [limit("it", 1.234, 2), peer], "sandbox": []},
        dict.fromkeys(("ack", "sandbox"), "About."),
        "M",
        date,
    )
    assert text.startswith("# Performance\n")
    assert "22 November 2026, on M." in text
    assert "## ack\n\nAbout.\n\n22 November" in text
    assert "| it | 1.23 ms | 2 ms | 0.62 (≤ 1) |  |" in text
    assert "| a \\| b | 3.00 ms | 1 ms (peer) | 3.00 (≤ 1.5) | **missed** |" in text
    assert text.endswith("## sandbox\n\nAbout.\n\nNot measured yet.\n")


def test_what_is_not_measured_again_keeps_its_figures_and_their_date() -> None:
    about = {"ack": "About.", "burst": "About.", "walk": "About."}
    first, second = datetime(2026, 11, 22, tzinfo=UTC), datetime(2026, 11, 26, tzinfo=UTC)
    before = page({"ack": [limit("a", 1, 2)], "burst": [limit("b", 1, 2)]}, about, "M", first)
    text = page({"ack": [], "burst": [limit("b", 3, 2)]}, about, "N", second, before)
    assert "## ack\n\nAbout.\n\n22 November 2026, on M.\n\n" in text
    assert "| a | 1.00 ms |" in text
    assert "## burst\n\nAbout.\n\n26 November 2026, on N.\n\n" in text
    assert "| b | 1.00 ms |" not in text
    assert text.endswith("## walk\n\nAbout.\n\nNot measured yet.\n")
    assert page({}, about, "N", second, text) == text


def test_the_machine_has_no_name() -> None:
    told = machine(1.5)
    assert platform.node() not in told
    assert "/" not in told
    assert f"{os.cpu_count()} processors" in told


def test_the_page_of_the_documentation_holds_every_measurement() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == list(MEASUREMENTS)
    assert not re.search(r"/(?:home|root|tmp|work|Users)\b", text)

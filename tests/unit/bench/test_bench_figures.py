"""What a measurement is held to, and when it is good enough."""

from __future__ import annotations

import math

import pytest

from bench.figures import Figure, limit, median, percentile, table


def peer(measured: float, against: float, reach: float) -> Figure:
    return Figure(what="it", measured=measured, against=against, against_what="peer", reach=reach)


@pytest.mark.parametrize(("measured", "reached"), [(14.9, True), (15.0, True), (15.1, False)])
def test_a_figure_is_reached_up_to_its_ratio(measured: float, reached: bool) -> None:
    assert peer(measured, against=10, reach=1.5).reached is reached


def test_nothing_is_allowed_only_nothing() -> None:
    assert limit("memory", 0, 0).reached
    assert limit("memory", 0.1, 0).ratio == math.inf


def test_the_99th_percentile_is_one_of_the_values() -> None:
    values = [float(n) for n in range(200, 0, -1)]
    assert percentile(values, 99) == 198
    assert percentile([7.0], 99) == 7
    assert median([3.0, 1.0, 2.0]) == 2


def test_the_table_says_what_was_missed() -> None:
    head, good, bad = table([limit("wake", 25, 150), peer(4, against=1, reach=3)]).splitlines()
    assert head.startswith("what")
    assert good.rstrip().endswith("reached")
    assert "4.00" in bad
    assert bad.rstrip().endswith("MISSED")

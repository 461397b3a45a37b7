"""When the costs of many messages count as flat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.soak.cost import Part, ratios, verdict

FIRST = Part(
    messages=1000,
    seconds=100,
    parent_ms=10,
    worker_ms=20,
    children_ms=10,
    bytes=6000,
    parent_mb=60,
    worker_mb=50,
    fds=(30, 20),
    speed=0.001,
)


def test_as_much_as_at_first_is_flat() -> None:
    last = replace(FIRST, parent_ms=11.9, bytes=7000, worker_mb=64, fds=(39, 21))
    assert verdict([FIRST, FIRST, last]) == []
    assert ratios([FIRST, last]).startswith("parent_ms 1.19")


@pytest.mark.parametrize(
    "grown",
    [
        {"parent_ms": 12.1},
        {"worker_ms": 25},
        {"children_ms": 13},
        {"bytes": 7300},
        {"parent_mb": 76},
        {"worker_mb": 66},
        {"fds": (30, 31)},
    ],
)
def test_what_grew_is_named(grown: dict[str, float | tuple[int, int]]) -> None:
    [told] = verdict([FIRST, FIRST, FIRST, FIRST, replace(FIRST, **grown)])  # type: ignore[arg-type]
    assert told.startswith(next(iter(grown)).replace("fds", "open files"))


def test_a_slower_machine_is_no_growth() -> None:
    slower = replace(FIRST, parent_ms=20, worker_ms=40, children_ms=20, speed=0.002)
    assert verdict([FIRST, slower]) == []


def test_one_part_says_nothing() -> None:
    assert verdict([FIRST]) != []

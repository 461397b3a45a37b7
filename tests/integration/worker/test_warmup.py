"""The dress rehearsal that workers share the fruits of."""

from __future__ import annotations

from pathlib import Path

from codebutler_worker.warmup import warm_up


def test_it_goes_through_a_command_and_a_turn_and_leaves_nothing(tmp_path: Path) -> None:
    assert warm_up(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_where_it_cannot_be_held_it_says_so_and_raises_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not warm_up(tmp_path / "file")

"""A dictionary that forgets its oldest entries."""

from __future__ import annotations

from codebutler.platform.tasks import BoundedDict


def test_the_oldest_is_forgotten() -> None:
    kept: BoundedDict[str, int] = BoundedDict(2)
    kept["a"] = 1
    kept["b"] = 2
    kept["c"] = 3
    assert dict(kept) == {"b": 2, "c": 3}


def test_what_is_set_again_is_the_newest() -> None:
    kept: BoundedDict[str, int] = BoundedDict(2)
    kept["a"] = 1
    kept["b"] = 2
    kept["a"] = 3
    kept["c"] = 4
    assert dict(kept) == {"a": 3, "c": 4}


def test_a_default_counts_too_and_changes_nothing_that_is_there() -> None:
    kept: BoundedDict[str, int] = BoundedDict(2)
    assert [kept.setdefault(name, len(kept)) for name in ("a", "b", "a", "c")] == [0, 1, 0, 2]
    assert list(kept) == ["b", "c"]

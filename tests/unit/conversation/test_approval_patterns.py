"""What one decision covers, and what makes two calls the same."""

from __future__ import annotations

import pytest

from codebutler_worker.present.calls import canonical, digest_of, pattern_of


def test_the_order_of_keys_makes_no_other_call() -> None:
    one = canonical("Bash", {"a": 1, "b": {"c": 2, "d": 3}})
    assert one == canonical("Bash", {"b": {"d": 3, "c": 2}, "a": 1})
    assert len(digest_of(one)) == 64


@pytest.mark.parametrize(
    ("tool", "given"),
    [("Bash", {"command": "ls "}), ("Bash", {"command": "ls", "x": 1}), ("Write", {"command": "ls"})],
)
def test_any_difference_makes_another_call(tool: str, given: dict[str, object]) -> None:
    assert digest_of(canonical(tool, given)) != digest_of(canonical("Bash", {"command": "ls"}))
    assert pattern_of(tool, given) != pattern_of("Bash", {"command": "ls"})


def test_a_remark_makes_no_other_pattern() -> None:
    assert pattern_of("Bash", {"command": "ls", "description": "look"}) == pattern_of(
        "Bash", {"command": "ls"}
    )


def test_a_file_is_covered_by_its_exact_path_and_tool() -> None:
    write = pattern_of("Write", {"file_path": "/repo/a", "content": "1"})
    assert write == pattern_of("Write", {"file_path": "/repo/a", "content": "2"})
    assert write != pattern_of("Write", {"file_path": "/repo/b", "content": "1"})
    assert write != pattern_of("Edit", {"file_path": "/repo/a", "content": "1"})

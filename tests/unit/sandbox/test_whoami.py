"""Who agents are, in words."""

from __future__ import annotations

import pytest

from codebutler_worker.sandbox.whoami import identity


@pytest.mark.parametrize(
    ("walls", "uid", "owner", "is_well", "words"),
    [
        ("bwrap", 1000, 1000, True, "as you (user 1000)"),
        ("none", 1000, 1000, True, "as you (user 1000)"),
        ("bwrap", 0, 1001, True, "become the repository's owner (user 1001)"),
        ("docker", 0, 1001, True, "become the repository's owner (user 1001)"),
        ("bwrap", 0, 0, False, "inside the walls agents are user 1000"),
        ("docker", 0, 0, False, "nothing is started there"),
        ("none", 0, 0, False, "without walls so do agents"),
        ("none", 0, 1001, False, "without walls so do agents"),
    ],
)
def test_who_they_are(walls: str, uid: int, owner: int, *, is_well: bool, words: str) -> None:
    well, told = identity(walls, uid, owner)
    assert well is is_well
    assert words in told

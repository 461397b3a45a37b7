"""Who agents are, in words."""

from __future__ import annotations

import pytest

from codebutler_worker.sandbox.person import identity


@pytest.mark.parametrize(
    ("walls", "uid", "owner", "level", "words"),
    [
        ("bwrap", 1000, 1000, "ok", "as you (user 1000)"),
        ("none", 1000, 1000, "ok", "as you (user 1000)"),
        ("docker", 1000, 1000, "ok", "agents run as user 1000, without"),
        ("docker", 1000, 1001, "ok", "agents run as user 1001, the repository's owner"),
        ("docker", 1000, 0, "FAIL", "chown -R 1000:1000 /r"),
        ("bwrap", 0, 1001, "ok", "become the repository's owner (user 1001)"),
        ("none", 0, 1001, "ok", "become the repository's owner (user 1001)"),
        ("docker", 0, 1001, "ok", "agents run as user 1001, the repository's owner"),
        ("bwrap", 0, 0, "FAIL", "chown -R 1000:1000 /r"),
        ("bwrap", 1000, 0, "ok", "as you (user 1000)"),
        ("docker", 0, 0, "FAIL", "chown -R 1000:1000 /r"),
        ("none", 0, 0, "FAIL", "/r belongs to root, and agents do not run as root"),
    ],
)
def test_who_they_are(walls: str, uid: int, owner: int, level: str, words: str) -> None:
    found, told = identity(walls, uid, owner, "/r")
    assert found == level
    assert words in told
    assert "\n" not in told

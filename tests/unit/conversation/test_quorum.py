"""Which calls need more than one person."""

from __future__ import annotations

from typing import Any

import pytest

from codebutler_worker.conversation.asking.quorum import needed_for

QUORUM = {"git push": 2, "push --force": 3, "Write prod.env": 2, "": 9}


@pytest.mark.parametrize(
    ("tool", "given", "needed"),
    [
        ("Bash", {"command": "git push"}, 2),
        ("Bash", {"command": "cd x && git -C /repo  push origin"}, 2),
        ("Bash", {"command": "gi\\t p'u's\"h\""}, 2),
        ("Bash", {"command": "GIT PUSH"}, 2),
        ("Bash", {"command": "git\npush"}, 2),
        ("Bash", {"command": "git push --force"}, 3),
        ("Bash", {"command": "git pull"}, 1),
        ("Bash", {"command": "push git"}, 1),
        ("Bash", {"command": "git pushes"}, 1),
        ("Write", {"file_path": "/repo/prod.env", "content": ""}, 2),
        ("Task", {"steps": [{"do": ["git", {"then": "push"}]}]}, 2),
        ("Bash", {}, 1),
    ],
)
def test_needed_for(tool: str, given: dict[str, Any], needed: int) -> None:
    assert needed_for(QUORUM, tool, given) == needed


def test_without_patterns_one_person_is_enough() -> None:
    assert needed_for({}, "Bash", {"command": "git push"}) == 1

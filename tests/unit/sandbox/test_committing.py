"""What is advised where walls are in git's way."""

from __future__ import annotations

import pytest

from codebutler_worker.sandbox.prelude import hint


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("error: could not write config file .git/config: Device or resource busy", "git -c KEY=VALUE"),
        ("error: could not lock config file .git/config: Operation not permitted", "git -c KEY=VALUE"),
        ("fatal: could not create directory of '.git/worktrees/x': Read-only file system", "git clone"),
        ("Author identity unknown\n\n*** Please tell me who you are.\n", "git config --global user.name"),
        ("fatal: empty ident name (for <a@b>) not allowed", "git config --global user.name"),
    ],
)
def test_advice(output: str, advice: str) -> None:
    assert advice in hint(output)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "umount: /mnt: Device or resource busy",
        "error: could not write config file x: No space left on device",
        "touch: cannot touch '/usr/x': Read-only file system",
    ],
)
def test_other_failures_speak_for_themselves(output: str) -> None:
    assert hint(output) == ""

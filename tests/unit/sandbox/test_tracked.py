"""Whether git's index names something of ours, and what a program begins with then."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from codebutler.config.git_repo import Owner
from codebutler_worker.sandbox.checkout import Checkout
from codebutler_worker.sandbox.prelude import names_private, with_tracked

REPO = Path("/home/ann/repo")


def index(version: int, *names: str, extension: bytes = b"") -> bytes:
    """As much of one as is looked at (gitformat-index(5))."""
    entries = b"".join(bytes(62) + name.encode() + b"\0" for name in names)
    return b"DIRC" + struct.pack(">II", version, len(names)) + entries + extension


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", False),
        (index(2), False),
        (index(2, "README.md", "docs/codebutler/x"), False),
        (index(3, ".codebutlerx", "x.codebutler"), False),
        (index(2, ".codebutler/jobs.yaml"), True),
        (index(3, "a", ".codebutler/skills/x.md"), True),
        # Here names are cut, or lie in another file.
        (index(4, "a"), True),
        (index(2, extension=b"link" + bytes(24)), True),
    ],
)
def test_only_git_itself_can_say_no_where_names_are_not_whole(content: bytes, expected: bool) -> None:
    assert names_private(content) == expected


def test_without_git_nothing_comes_before_a_program() -> None:
    checkout = Checkout(root=REPO, owner=Owner(1000, 1000), private=REPO / ".codebutler")
    assert with_tracked(("true",), checkout) == ("true",)

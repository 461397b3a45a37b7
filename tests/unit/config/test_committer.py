"""Whose commits they are, from what git's configuration says."""

from __future__ import annotations

import pytest

from codebutler.config.git_repo import LONGEST, parsed, variables


def test_one_name_is_the_authors_and_the_committers() -> None:
    assert variables({"user.name": "Ann", "user.email": "a@b"}) == {
        "GIT_AUTHOR_NAME": "Ann",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "Ann",
        "GIT_COMMITTER_EMAIL": "a@b",
    }


def test_what_is_said_for_one_role_goes_before_what_is_said_for_both() -> None:
    env = variables({"user.name": "Ann", "committer.name": "Bot"})
    assert env == {"GIT_AUTHOR_NAME": "Ann", "GIT_COMMITTER_NAME": "Bot"}


def test_the_last_of_a_key_counts_and_an_empty_one_does_not() -> None:
    entries = (b"user.name\nAnn", b"user.name\n Bea ", b"user.email\n", b"user.email")
    told = b"".join(b"file:.git/config\0" + entry + b"\0" for entry in entries)
    assert parsed(told) == ({"user.name": "Bea"}, {".git/config"})
    assert parsed(b"") == ({}, set())


@pytest.mark.parametrize("value", ["a\nb", "a\x1b[31m", "Ann <x@y>", "\u202eAnn", "a" * (LONGEST + 1)])
def test_what_is_no_name_is_not_taken(value: str) -> None:
    assert parsed(f"file:x\0user.name\n{value}\0".encode())[0] == {}


def test_what_is_not_utf_8_is_not_taken() -> None:
    assert parsed(b"file:x\0user.name\nAnn \xff\0")[0] == {}

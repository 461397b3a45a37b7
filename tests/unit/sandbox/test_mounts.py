"""Whether what a container says of its mounts is what was wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler_worker.sandbox.docker_argv import OUTDATED, ExpectedMount, mismatch, question

WANTED = (
    ExpectedMount(Path("/r"), read_only=False, identity=(8, 1)),
    ExpectedMount(Path("/r/.git/config"), read_only=True, identity=(8, 2)),
    ExpectedMount(Path("/r/.codebutler"), read_only=True, identity=None),
    ExpectedMount(Path("/with a space"), read_only=False, identity=(8, 3)),
)
TABLE = """\
1 0 0:1 / / ro,relatime - overlay overlay rw
2 1 8:0 /r /r rw,relatime - ext4 /dev/x rw
3 2 8:0 /r/.git/config /r/.git/config ro,relatime shared:1 - ext4 /dev/x rw
4 2 0:9 / /r/.codebutler ro,nosuid - tmpfs tmpfs ro
5 1 8:0 /s /with\\040a\\040space rw - ext4 /dev/x rw
"""
SEEN = "\n8 1\n8 2\n8 3\n"


def test_all_is_as_wanted() -> None:
    assert mismatch(WANTED, TABLE + SEEN, identities=True) == ""
    assert question(WANTED)[-3:] == ("/r", "/r/.git/config", "/with a space")


@pytest.mark.parametrize(
    ("was", "became", "told"),
    [
        ("/r/.git/config ro", "/r/.git/config rw", "/r/.git/config is not protected"),
        ("/r/.git/config /r/.git/config", "/r/.git/config /r/elsewhere", "/r/.git/config is not protected"),
        ("- tmpfs", "- ext4", "/r/.codebutler is not hidden"),
        ("/r/.codebutler ro", "/r/other ro", "/r/.codebutler is not protected"),
        ("8 2\n", "8 9\n", "/r/.git/config is different in the container"),
        ("8 1\n", "9 1\n", "/r is different in the container"),
        ("8 3\n", "", "/with a space is different in the container"),
        (TABLE, "", "/r is not protected"),
        (
            "5 1 8:0",
            "6 3 8:0 / /r/.git/config rw - ext4 /dev/y rw\n5 1 8:0",
            "/r/.git/config is not protected",
        ),
    ],
)
def test_what_is_not_as_wanted_is_named(was: str, became: str, told: str) -> None:
    assert was in TABLE + SEEN
    assert mismatch(WANTED, (TABLE + SEEN).replace(was, became), identities=True).startswith(told)


def test_another_kernels_numbers_are_not_compared() -> None:
    assert mismatch(WANTED, f"{TABLE}\n1 1\n1 1\n1 1\n", identities=False) == ""


def test_a_container_whose_first_process_can_be_read_says_nothing_and_is_refused() -> None:
    assert mismatch(WANTED, "", identities=True) == OUTDATED
    assert "run `codebutler sandbox build` again" in OUTDATED

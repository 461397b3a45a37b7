"""A commit on its way to its signature is data: it is what it says it is, or it is refused."""

from __future__ import annotations

import base64

import pytest

from codebutler.domain.errors import CodeButlerError
from codebutler_worker.forge.signing import object_id, unsigned_in, without_signature

TREE = b"100644 a\0" + bytes(20)
LIKE = "0" * 40
PARENT = f"tree {object_id('tree', b'', LIKE)}\n\nBegin".encode()
CONTENT = (
    f"tree {object_id('tree', TREE, LIKE)}\nparent {object_id('commit', PARENT, LIKE)}\n"
    "author A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\ngpgsig in the message\n more"
).encode()


def printed(*parts: bytes, commit: str = "") -> bytes:
    first = f"unsigned {commit or object_id('commit', parts[0], LIKE)}".encode()
    return b"\n".join([first, *map(base64.b64encode, parts)])


def test_it_matches_its_ids() -> None:
    found = unsigned_in(printed(CONTENT, TREE, PARENT))
    assert (found.content, found.tree, found.parent) == (CONTENT, TREE, PARENT)
    assert found.lines("author") == ["A <a@b> 1 +0000"]


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"unsigned",
        printed(CONTENT),
        printed(CONTENT, TREE),
        printed(CONTENT, TREE, PARENT + b"!"),
        printed(CONTENT, TREE + b"!", PARENT),
        printed(CONTENT, TREE, PARENT, commit=LIKE),
        printed(CONTENT.replace(b"tree ", b"tree --", 1), TREE, PARENT),
        printed(CONTENT.replace(b"\nauthor", b"\nparent --upload-pack=x\nauthor"), TREE, PARENT),
        printed(CONTENT, TREE, PARENT).replace(b"=", b"\xff"),
    ],
)
def test_anything_else_is_refused(output: bytes) -> None:
    with pytest.raises(CodeButlerError):
        unsigned_in(output)


def test_without_its_signature_it_is_what_it_was() -> None:
    signed = CONTENT.replace(b"\n\n", b"\ngpgsig -----BEGIN-----\n more\n \n -----END-----\n\n", 1)
    assert signed != CONTENT
    assert without_signature(signed) == CONTENT
    assert without_signature(CONTENT) == CONTENT

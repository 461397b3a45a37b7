"""A commit before it is signed: its content as git stores it, and the objects that it names. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Awaitable, Callable

from msgspec import Struct

from codebutler.domain.errors import CodeButlerError

MARK = b"unsigned"


class UnsignedCommit(Struct, frozen=True):
    """A commit to sign. ``content`` is the commit ``commit``, ``tree`` its tree and ``parent`` the commit before it
    (None = it is the first): data from inside the sandbox, which match their IDs."""

    commit: str
    content: bytes
    tree: bytes
    parent: bytes | None = None

    def lines(self, name: str) -> list[str]:
        """The values of its header lines of that name."""
        head = self.content.partition(b"\n\n")[0].decode("utf-8", "surrogateescape")
        return [line.removeprefix(f"{name} ") for line in head.split("\n") if line.startswith(f"{name} ")]


Sign = Callable[[UnsignedCommit], Awaitable[bytes]]
"""Returns the content of the signed commit. Raises CodeButlerError."""


def unsigned_in(output: bytes) -> UnsignedCommit:
    """What the script prints: the ID, then content, tree and parent, each in base64 on its own line. Raises
    CodeButlerError if they do not match."""
    try:
        first, *rest = output.split(b"\n")
        content, tree, parent = [base64.b64decode(line, validate=True) for line in [*rest, b"", b""][:3]]
        found = UnsignedCommit(first.split()[1].decode(), content, tree, parent or None)
    except (ValueError, IndexError, binascii.Error):
        raise CodeButlerError("git gave an unexpected answer") from None
    wanted = [(found.commit, "commit", content), *((each, "tree", tree) for each in found.lines("tree"))]
    wanted += [(each, "commit", parent) for each in found.lines("parent")]
    if len(found.lines("tree")) != 1 or any(
        object_id(kind, data, name) != name for name, kind, data in wanted
    ):
        raise CodeButlerError("git gave an unexpected answer")
    return found


def object_id(kind: str, content: bytes, like: str) -> str:
    """The ID of an object with this content, in the same format as the ID ``like``."""
    algorithm = hashlib.sha256 if len(like) == 64 else hashlib.sha1
    return algorithm(f"{kind} {len(content)}\0".encode() + content).hexdigest()


def without_signature(content: bytes) -> bytes:
    """A signed commit as it was before."""
    head, end, body = content.partition(b"\n\n")
    kept: list[bytes] = []
    skips = False
    for line in head.split(b"\n"):
        skips = line.startswith((b"gpgsig ", b"gpgsig-sha256 ")) or (skips and line.startswith(b" "))
        if not skips:
            kept.append(line)
    return b"\n".join(kept) + end + body

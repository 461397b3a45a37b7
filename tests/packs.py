"""A pack as no git would write it: small on disk, and too large once it is unfolded."""

from __future__ import annotations

import hashlib
import struct
import zlib
from pathlib import Path

COMMIT, TREE, BLOB, REF_DELTA = 1, 2, 3, 7
COPY_ALL = 0x80 | 0x70
"""A delta's instruction (gitformat-pack(5)): from offset 0, with three bytes of size."""


def unfolding_commit(repo: Path, size_bytes: int, parent: str) -> str:
    """A commit in the repository, on ``parent``, with a file that is about ``size_bytes`` long, of which the pack has
    some thousand."""
    base = bytes(2**24 - 1)
    times = size_bytes // len(base)
    size, unfolded = len(base) * times, hashlib.sha1(f"blob {len(base) * times}\0".encode())
    for _ in range(times):
        unfolded.update(base)
    delta = _number(len(base)) + _number(size) + (bytes([COPY_ALL]) + len(base).to_bytes(3, "little")) * times
    first, large = _name("blob", base), unfolded.digest()
    tree = b"100644 large\0" + large + b"100644 small\0" + first
    who = "Eve <eve@example.org> 1700000000 +0000"
    commit = (
        f"tree {_name('tree', tree).hex()}\nparent {parent}\nauthor {who}\ncommitter {who}\n\nGrow\n".encode()
    )
    objects = {
        first: _head(BLOB, len(base)) + zlib.compress(base, 9),
        large: _head(REF_DELTA, len(delta)) + first + zlib.compress(delta, 9),
        _name("tree", tree): _head(TREE, len(tree)) + zlib.compress(tree),
        _name("commit", commit): _head(COMMIT, len(commit)) + zlib.compress(commit),
    }
    _write(repo / ".git/objects/pack", objects)
    return _name("commit", commit).hex()


def _write(place: Path, objects: dict[bytes, bytes]) -> None:
    """The pack and its index."""
    pack, found = bytearray(b"PACK" + struct.pack(">II", 2, len(objects))), {}
    for name, packed in objects.items():
        found[name] = (zlib.crc32(packed), len(pack))
        pack += packed
    pack += hashlib.sha1(pack).digest()
    names = sorted(found)
    index = bytearray(b"\xfftOc" + struct.pack(">I", 2))
    index += b"".join(struct.pack(">I", sum(name[0] <= first for name in names)) for first in range(256))
    index += b"".join(names)
    index += b"".join(struct.pack(">I", found[name][0]) for name in names)
    index += b"".join(struct.pack(">I", found[name][1]) for name in names)
    index += pack[-20:]
    index += hashlib.sha1(index).digest()
    stem = f"pack-{hashlib.sha1(b''.join(names)).hexdigest()}"
    (place / f"{stem}.pack").write_bytes(pack)
    (place / f"{stem}.idx").write_bytes(index)


def _name(kind: str, content: bytes) -> bytes:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content).digest()


def _head(kind: int, size: int) -> bytes:
    rest, size = size >> 4, (kind << 4) | (size & 15)
    return bytes([size | (0x80 if rest else 0)]) + (_number(rest) if rest else b"")


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])

"""An empty repository for one agent's turns, thrown away afterwards."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import tempfile
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

from codebutler.config.git_repo import sudo_user
from codebutler.config.schema import RepoSettings
from codebutler_worker.store.opening import prepare_state_dir

COLOURS: Mapping[str, bytes] = MappingProxyType(
    {"red": b"\xe0\x10\x10", "green": b"\x10\xb0\x20", "blue": b"\x10\x20\xe0", "yellow": b"\xf0\xe0\x10"}
)
PICTURE_PIXELS = 64


@asynccontextmanager
async def scratch_repository(like: RepoSettings) -> AsyncIterator[Path]:
    """A repository that belongs to the same user as ``like``'s, so that programs run as in that one."""
    place = "/tmp" if os.geteuid() == 0 else None  # noqa: S108 - open to walk to, where a private directory is made
    with tempfile.TemporaryDirectory(prefix="codebutler-doctor-", dir=place) as directory:
        repo = Path(directory).resolve() / "sample"
        repo.mkdir()
        # Readable for the ordinary user that root's agents run as.
        repo.parent.chmod(0o755)
        (repo / "README.md").write_text("A sample.\n", encoding="utf-8")
        prepare_state_dir(repo)
        await asyncio.to_thread(
            subprocess.run, ["git", "init", "-q", str(repo)], check=False, stdout=subprocess.DEVNULL
        )
        if os.geteuid() == 0:
            await asyncio.to_thread(give_away, repo, owner_of(like))
        yield repo


def owner_of(settings: RepoSettings) -> int:
    """The user's number; without a repository that of the person who runs us."""
    path = Path(settings.path)
    if settings.path and path.exists():
        return path.stat().st_uid
    return os.geteuid() or sudo_user(os.environ).uid


def give_away(repo: Path, owner: int) -> None:
    """Make everything in the repository its owner's."""
    for path in (repo, *repo.rglob("*")):
        os.chown(path, owner, owner, follow_symlinks=False)


def picture(colour: str) -> bytes:
    """A PNG (ISO/IEC 15948) of nothing but this colour. Pure."""
    row = b"\0" + COLOURS[colour] * PICTURE_PIXELS
    header = struct.pack(">IIBBBBB", PICTURE_PIXELS, PICTURE_PIXELS, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(row * PICTURE_PIXELS)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

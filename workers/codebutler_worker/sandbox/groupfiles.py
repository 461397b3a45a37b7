"""The files of control groups. Kernel: Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst."""

from __future__ import annotations

import contextlib
from pathlib import Path


def members(directory: Path) -> list[int]:
    """The processes in a group, as far as we see them; none if there is no such group."""
    try:
        # 0: a process that our pid namespace does not see.
        return [
            pid
            for word in (directory / "cgroup.procs").read_text(encoding="ascii").split()
            if (pid := int(word))
        ]
    except OSError:
        return []


def count(directory: Path, files: tuple[str, ...], key: str) -> int:
    """What the first of ``files`` that is there says after ``key``; 0 if none does."""
    for file in files:
        with contextlib.suppress(OSError):
            words = (directory / file).read_text(encoding="ascii").split()
            return int(words[words.index(key) + 1]) if key in words else 0
    return 0


def write(file: Path, text: str) -> None:
    """Write into a file of a group; nothing happens where there is none, or the kernel refuses."""
    if file.exists():
        with contextlib.suppress(OSError):
            file.write_text(text, encoding="ascii")

"""Which file a name stands for: one that was put in its place has another identity."""

from __future__ import annotations

import os
from pathlib import Path


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of what is there, of a link itself; None if there is nothing that we may look at."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino

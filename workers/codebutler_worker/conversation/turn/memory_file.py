"""Reading ``memory.md`` as what it is: a file somebody else may have put there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MAX_BYTES = 32 * 1024


def read_memory(state_dir: Path) -> str:
    """The first 32 KiB of ``memory.md``; "" if there is none, or if it is anything but a plain file."""
    try:
        descriptor = os.open(
            state_dir / "memory.md", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.read(descriptor, MAX_BYTES).decode("utf-8", "replace")
    finally:
        os.close(descriptor)

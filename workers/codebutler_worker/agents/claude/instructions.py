"""The checkout's own CLAUDE.md, read without trusting the checkout.

``--setting-sources user`` keeps a hostile checkout's settings from running, and drops its CLAUDE.md as well
(Claude Code 2.1.328); the text still belongs to the agent, so it travels in the system prompt.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

FILES = ("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")
LIMIT_BYTES = 64 * 2**10


def project_instructions(workdir: Path) -> str:
    """What the checkout tells agents, as a section for the system prompt; empty if it says nothing."""
    texts = [(name, read_inside(workdir, name)) for name in FILES]
    return "\n\n".join(f"# The repository's {name}\n\n{text.strip()}" for name, text in texts if text.strip())


def read_inside(root: Path, name: str, limit_bytes: int = LIMIT_BYTES) -> str:
    """The first ``limit_bytes`` of a regular file below ``root``; empty if absent or reached over a symlink.

    Each part is opened relative to its parent without following links, so nothing can be swapped in between.
    """
    with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        opened.callback(os.close, directory)
        *parents, last = Path(name).parts
        for part in parents:
            directory = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            opened.callback(os.close, directory)
        # Without O_NONBLOCK a named pipe would hold us for ever.
        file = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        opened.callback(os.close, file)
        if stat.S_ISREG(os.fstat(file).st_mode):
            return os.read(file, limit_bytes).decode(errors="replace")
    return ""

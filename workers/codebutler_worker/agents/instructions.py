"""What a checkout tells agents (CLAUDE.md, AGENTS.md), read without trusting the checkout."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from codebutler_worker.sandbox.destinations import read_head

LIMIT_BYTES = 64 * 2**10


def repository_says(workdir: Path, files: Iterable[str]) -> str:
    """A section for each of ``files`` below ``workdir`` that says something, as Markdown; a longer one is cut.

    What is no regular file, or is reached over a symbolic link, says nothing.
    """
    sections = []
    for name in files:
        with contextlib.suppress(OSError):
            text = read_head(workdir, name, LIMIT_BYTES).decode(errors="replace").strip()
            sections += [f"# The repository's {name}\n\n{text}"] if text else []
    return "\n\n".join(sections)

"""Links in a git directory that somebody's git would write through: ``git commit`` the message into whatever
COMMIT_EDITMSG leads to, say (and that may have been prepared in MERGE_MSG), or its first line into what the log of a
branch does. Git itself lays out none. Blocking.
"""

from __future__ import annotations

import os
from pathlib import Path

from codebutler.errors import SandboxUnavailableError

KEPT_ELSEWHERE = ("lfs", "annex")
"""Large files are sometimes kept elsewhere by their owner, and git follows no link there to write."""
OTHERS = ("modules", *KEPT_ELSEWHERE)
"""What lies in these is no part of this repository's own: submodules are repositories, with a configuration."""
SHALLOW = "objects"
"""Files in here are written under names of their content, and never over others: only whole directories lead away."""
MOST = 200_000


def refuse_links(git: Path) -> None:
    """Raises SandboxUnavailableError with what to do."""
    left = [git]
    seen = 0
    while left:
        place = left.pop()
        for entry in _entries(place):
            seen += 1
            if entry.is_symlink() and not (place == git and entry.name in KEPT_ELSEWHERE):
                raise SandboxUnavailableError(
                    f"{entry.path} is a symbolic link, and your git would write through it: remove it"
                )
            inside = place != git / SHALLOW and not (place == git and entry.name in OTHERS)
            if inside and entry.is_dir(follow_symlinks=False):
                left.append(Path(entry.path))
        if seen > MOST:
            raise SandboxUnavailableError(
                f"{git} holds more than {MOST} files that are no objects: look what they are (`git pack-refs --all` "
                "puts branches and tags into one)"
            )


def _entries(place: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError:
        return []  # gone meanwhile, or not ours to read: then git cannot, either

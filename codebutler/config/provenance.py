"""Whose hand a repository's ``jobs.yaml`` is from: what somebody commits must not run here by itself.

Its owner's file is one that git does not track. One that git tracks came with a clone or a pull, and counts only once
it is trusted. That it came so is written down: an agent may take it out of git's index, but not out of the registry.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from codebutler.config.git_repo import is_tracked
from codebutler.config.paths import PRIVATE_DIR, RepoPaths
from codebutler.config.registry import Registry, RepoEntries, RepoEntry, find, replace
from codebutler.config.trust import digest

JOBS_NAME = "jobs.yaml"
JOBS_PATH = f"{PRIVATE_DIR}/{JOBS_NAME}"
REMEMBERED = 20


class Provenance:
    """Judges the ``jobs.yaml`` of registered repositories. Asks git once for each content; may block."""

    def __init__(self, registry: Registry, tracked: Callable[[Path, str], bool] = is_tracked) -> None:
        self._registry = registry
        self._tracked = tracked
        self._own: set[tuple[str, str]] = set()
        self._foreign: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def objection(self, entry: RepoEntry, data: bytes) -> str:
        """Why a file with this content does not count, in words that follow its path; "" if it does.

        Raises CodeButlerError if that cannot be found out or written down.
        """
        found = digest(data)
        if found == entry.jobs_digest:
            return ""
        with self._lock:
            if self._is_foreign(entry, found):
                return f"came with the repository: read it, then run `codebutler trust {entry.name}`"
        return ""

    def _is_foreign(self, entry: RepoEntry, found: str) -> bool:
        known = (entry.path, found)
        if known in self._foreign or found in entry.foreign_jobs:
            return True
        if known in self._own:
            return False
        repo = RepoPaths(Path(entry.path))
        if not is_submodule(repo) and not self._tracked(repo.repo, JOBS_PATH):
            self._own.add(known)
            return False
        self._registry.update(partial(_disowned, name=entry.name, found=found))
        self._foreign.add(known)
        return True


def is_submodule(repo: RepoPaths) -> bool:
    """Whether the private directory is another repository's work tree, whose files git does not name in this one."""
    return os.path.lexists(repo.root / ".git")


def read_jobs(entry: RepoEntry) -> bytes | None:
    """The repository's own ``jobs.yaml``, None if it has none; never through a link. Raises ConfigError."""
    try:
        with RepoPaths(Path(entry.path)).open() as directory:
            return directory.read(JOBS_NAME)
    except FileNotFoundError:
        return None


def _disowned(entries: RepoEntries, name: str, found: str) -> RepoEntries:
    entry = find(entries, name)
    others = tuple(each for each in entry.foreign_jobs if each != found)
    return replace(entries, msgspec.structs.replace(entry, foreign_jobs=(*others, found)[-REMEMBERED:]))

"""Reading and changing ``memory.md``: as a whole, one change at a time, and never through a link.

The worker, `codebutler memory` and people's editors share it. Ours hold a lock while they read, change and write.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from codebutler.config.memory.operations import Applied
from codebutler.config.paths import RepoPaths
from codebutler.domain.errors import CodeButlerError, ConfigError
from codebutler.platform.files import PrivateDir

MEMORY_NAME = "memory.md"
MAX_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """The memory of the repository at ``repo``. Blocking: for a thread."""

    repo: Path

    @property
    def path(self) -> Path:
        """Where it is."""
        return RepoPaths(self.repo).root / MEMORY_NAME

    def read(self) -> str:
        """Its text, "" if there is none. Raises CodeButlerError for what is no plain file of a sane size."""
        try:
            with RepoPaths(self.repo).open() as directory:
                return _text(directory)
        except FileNotFoundError:
            return ""
        except PermissionError as error:
            raise ConfigError(
                f"cannot read {self.path}: permission denied: check its owner and mode"
            ) from error

    def change(self, work: Callable[[str], Applied]) -> Applied:
        """Put what ``work`` makes of the text in its place. Raises CodeButlerError; the file is then as it was."""
        try:
            with RepoPaths(self.repo).open() as directory:
                lock = os.open(directory.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    applied = work(_text(directory))
                    if applied.made:
                        directory.write(MEMORY_NAME, applied.text.encode())
                    return applied
                finally:
                    os.close(lock)
        except FileNotFoundError as error:
            raise CodeButlerError(
                f"{RepoPaths(self.repo).root} does not exist: register the repository with `codebutler add-repo`"
            ) from error
        except PermissionError as error:
            raise CodeButlerError(f"cannot open {self.path}: permission denied: check its owner") from error


def _text(directory: PrivateDir) -> str:
    data = directory.read(MEMORY_NAME, MAX_BYTES)
    return "" if data is None else data.decode("utf-8", "replace")

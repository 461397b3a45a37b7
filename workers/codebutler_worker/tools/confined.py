"""Paths named by a model, confined to the working directory.

Applies without a sandbox too: no link is followed, git's own files are not written, and what is hidden from agents
(``.codebutler`` except for files that people sent) is neither read nor written. These functions only inspect, using
descriptors. The reading and writing happens in the sandbox, with the agent's rights, so it is harmless if a path
changes in between.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePosixPath

from codebutler_worker.sandbox.checkout import PRIVATE, SHARED
from codebutler_worker.sandbox.destinations import UnsafePathError, open_beneath, status_beneath
from codebutler_worker.tools.tool import ToolError

GIT = ".git"


def relative_path(workdir: Path, path: str) -> str:
    """``path`` (relative, or absolute below ``workdir``) as a relative one; "." is the directory itself.

    Raises ToolError for a path that leaves the directory or that the agent may not see.
    """
    pure = PurePosixPath(path.strip() or ".")
    if "\0" in path or ".." in pure.parts:
        raise ToolError(f"{path!r}: stay inside the repository, without ..")
    if pure.is_absolute():
        if not pure.is_relative_to(workdir):
            raise ToolError(f"{path}: not in this repository: give its path relative to the repository")
        pure = pure.relative_to(workdir)
    if is_hidden(pure):
        raise ToolError(f"{path}: CodeButler's own files are off limits")
    return str(pure)


def is_hidden(path: PurePosixPath) -> bool:
    """Whether the path is hidden from agents. Ignores case, as some file systems do."""
    parts = [part.lower() for part in path.parts]
    return parts[:1] == [PRIVATE] and parts[1:2] not in ([name] for name in SHARED)


def check_writable(workdir: Path, path: str) -> str:
    """Like ``relative_path``, for a file to write. Raises ToolError also for git's own files and for links."""
    path_in_repo = relative_path(workdir, path)
    if path_in_repo == ".":
        raise ToolError("name a file")
    if any(part.lower() == GIT for part in PurePosixPath(path_in_repo).parts):
        raise ToolError(f"{path}: git's own files must not be edited: use git")
    try:
        status_beneath(workdir, path_in_repo)
    except NotADirectoryError:
        raise ToolError(f"{path}: a file is in the way: a directory is needed") from None
    except OSError as error:
        raise ToolError(f"{path}: {reason(error)}") from None
    return path_in_repo


def check_readable(workdir: Path, path: str, limit_bytes: int) -> str:
    """Like ``relative_path``, for a file to read. Raises ToolError also for links, larger files and whatever is no
    file."""
    path_in_repo = relative_path(workdir, path)
    try:
        status = status_beneath(workdir, path_in_repo)
    except OSError as error:
        raise ToolError(f"{path}: {reason(error)}") from None
    if status is None:
        raise ToolError(f"{path}: there is no such file")
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{path}: is a directory: use list_files")
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{path}: not a regular file")
    if status.st_size > limit_bytes:
        raise ToolError(f"{path}: larger than {limit_bytes} bytes: read a part of it with a command")
    return path_in_repo


def is_directory(workdir: Path, path: str) -> bool:
    """Whether it is a directory that may be listed. Raises ToolError if it may not."""
    path_in_repo = relative_path(workdir, path)
    if path_in_repo == ".":
        return True
    try:
        os.close(open_beneath(workdir, path_in_repo, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK))
    except NotADirectoryError:
        return False
    except OSError as error:
        raise ToolError(f"{path}: {reason(error)}") from None
    return True


def reason(error: OSError) -> str:
    """One line on why a file cannot be read."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError) or error.errno == errno.EISDIR:
        return "is a directory: use list_files"
    if isinstance(error, UnsafePathError):
        return (error.strerror or "cannot be opened safely").replace("\n", " ")
    return (error.strerror or str(error)).lower()

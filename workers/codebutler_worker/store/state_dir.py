"""``<repo>/.codebutler``: a repository's state, which git ignores. Never through a link."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from codebutler.config.git_repo import Owner
from codebutler.domain.errors import StoreError

STATE_DIR = ".codebutler"
# What agents see of it: received files, and files they make.
SHARED_DIRS = ("files", "images")


def prepare_state_dir(repo: Path) -> Path:
    """Make ``<repo>/.codebutler`` (mode 0700), the directories in it that agents share, and a ``.gitignore``
    that hides all of it; returns its path.

    Raises StoreError if the repository is gone, or the directory is a link, a file, someone else's or not
    writable.
    """
    directory = repo / STATE_DIR
    if not repo.is_dir():
        raise StoreError(f"{repo} no longer exists: restore it, or remove it with `codebutler remove-repo`")
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        check_state_dir(directory)
        directory.chmod(0o700)
        _let_the_owner_through(repo, directory)
        _write_once(directory / ".gitignore", "*\n")
        for name in SHARED_DIRS:
            _prepare_shared(directory / name)
    except OSError as error:
        raise StoreError(
            f"{directory}: {error.strerror or error}: check its permissions, and that its disk is not read-only"
        ) from error
    return directory


def check_state_dir(directory: Path) -> None:
    """Raise StoreError unless this is a real directory of ours: a link could lead our writes anywhere."""
    try:
        found = directory.lstat()
    except OSError as error:
        raise StoreError(f"{directory}: {error.strerror or error}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise StoreError(f"{directory} is a link or a file, it must be a directory: move it away")
    if found.st_uid != os.geteuid():
        raise StoreError(
            f"{directory} belongs to another user: make it yours (chown -R {os.geteuid()} {directory}) or remove it"
        )


def _let_the_owner_through(repo: Path, directory: Path) -> None:
    """Root's agents run as the repository's owner, whose group may pass through to the shared directories."""
    owner = Owner.at(repo)
    if os.geteuid() == 0 and not owner.is_root:
        os.chown(directory, -1, owner.gid, follow_symlinks=False)
        directory.chmod(0o710)


def _prepare_shared(directory: Path) -> None:
    """Make a directory that agents may write in. Anything they put in its place stays: its users check."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    if os.geteuid() == 0 and stat.S_ISDIR((found := directory.lstat()).st_mode) and found.st_uid == 0:
        # Only inside our own directory, where no agent can replace it by a link.
        owner = Owner.at(directory.parent.parent)
        os.chown(directory, owner.uid, owner.gid, follow_symlinks=False)


def _write_once(path: Path, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w") as file:
        file.write(text)

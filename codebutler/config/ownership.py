"""Whose a repository is. Started by root, agents (and git, outside) become its owner, who is never root."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ORDINARY_ID = 1000
RUN_AS_USER = "run CodeButler as an ordinary user"
ROOTS_OWN = (
    "{repo} belongs to root, and no agent is root: give it to an ordinary user (chown -R 1000:1000 {repo}), and best "
    + RUN_AS_USER
)
BARRED = (
    "{path} is out of reach for user {uid}, as whom agents run: {barrier} lets nobody else through; "
    "move it, or open the way (chmod o+x {barrier})"
)
ACL = "system.posix_acl_access"


@dataclass(frozen=True, slots=True)
class Owner:
    """An ordinary user, by number, as whom root starts programs."""

    uid: int
    gid: int

    @classmethod
    def of(cls, found: os.stat_result) -> Self:
        """Whose this is. Its group may be root's, which is as good as root for some files: then none but its own."""
        return cls(found.st_uid, found.st_gid or found.st_uid)

    @classmethod
    def at(cls, path: Path) -> Self:
        """Whose ``path`` is. Raises OSError as stat(2)."""
        return cls.of(path.stat())

    @property
    def is_root(self) -> bool:
        """Whether it is root's own, for whom no agent works."""
        return self.uid == 0


def behind(env: Mapping[str, str]) -> Owner:
    """Who root was before sudo(8), as it tells in ``env``; the first ordinary user where nobody was. Pure."""
    uid, gid = (env.get(name, "") for name in ("SUDO_UID", "SUDO_GID"))
    if uid.isdecimal() and int(uid):
        return Owner(int(uid), int(gid) if gid.isdecimal() and int(gid) else int(uid))
    return Owner(ORDINARY_ID, ORDINARY_ID)


def barrier(path: Path, owner: Owner) -> Path | None:
    """The first directory on the way to ``path``, links resolved, that ``owner``, in no other group than his own,
    cannot walk through; None if he gets there.

    By the modes alone: a directory with an access control list is taken to let him through.
    """
    for directory in reversed(path.resolve().parents):
        found = directory.stat()
        if found.st_uid == owner.uid:
            allowed = found.st_mode & 0o100
        elif found.st_gid == owner.gid:
            allowed = found.st_mode & 0o010
        else:
            allowed = found.st_mode & 0o001
        if not allowed and not _has_list(directory):
            return directory
    return None


def barred(path: Path, owner: Owner) -> str:
    """One line on what keeps ``owner`` from ``path`` and what to do; "" if nothing does."""
    found = barrier(path, owner)
    return "" if found is None else BARRED.format(path=path, uid=owner.uid, barrier=found)


def _has_list(directory: Path) -> bool:
    try:
        return ACL in os.listxattr(directory)
    except (AttributeError, OSError):  # neither has every system
        return False

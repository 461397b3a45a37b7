"""Who agents are, in words: never root, whoever started us. Pure."""

from __future__ import annotations

from typing import Literal

from codebutler.config.ownership import ROOTS_OWN

Level = Literal["ok", "warn", "FAIL"]


def identity(walls: str, uid: int, owner: int, repo: str = "the repository") -> tuple[Level, str]:
    """(how well that is, one line) about agents behind ``walls``, in ``repo``, which belongs to the user ``owner``,
    where CodeButler runs as ``uid``. FAIL: nothing is started there."""
    if owner == 0 and (walls == "docker" or uid == 0):
        return "FAIL", ROOTS_OWN.format(repo=repo)
    if walls == "docker":
        whose = "" if owner == 1000 else ", whose the repository is"
        return "ok", f"agents run as user {owner}{whose}, without any privilege"
    if uid != 0:
        return "ok", f"agents run as you (user {uid}), without any privilege"
    return "ok", f"CodeButler runs as root; agents become the repository's owner (user {owner})"

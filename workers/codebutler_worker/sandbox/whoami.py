"""Who agents are, in words: never root, whoever started us. Pure."""

from __future__ import annotations

from typing import Literal

RUN_AS_USER = "run CodeButler as an ordinary user"
ROOTS_OWN = (
    "{repo} belongs to root, and no agent is root: give it to an ordinary user (chown -R 1000:1000 {repo}) and "
    + RUN_AS_USER
)

Level = Literal["ok", "warn", "FAIL"]


def identity(walls: str, uid: int, owner: int, repo: str = "the repository") -> tuple[Level, str]:
    """(how well that is, one line) about agents behind ``walls``, in ``repo``, which belongs to the user ``owner``,
    where CodeButler runs as ``uid``. FAIL: nothing is started there."""
    if owner == 0 and (walls == "docker" or (uid == 0 and walls != "bwrap")):
        return "FAIL", ROOTS_OWN.format(repo=repo)
    if walls == "docker":
        whose = "" if owner == 1000 else ", whose the repository is"
        return "ok", f"agents run as user {owner}{whose}, without any privilege"
    if uid != 0:
        return "ok", f"agents run as you (user {uid}), without any privilege"
    if owner != 0:
        return "ok", f"CodeButler runs as root; agents become the repository's owner (user {owner})"
    return "warn", (
        "CodeButler runs as root and the repository is root's: inside the walls agents are user 1000 without any "
        f"privilege, but a hole in the walls would be root's: give the repository to an ordinary user, or {RUN_AS_USER}"
    )

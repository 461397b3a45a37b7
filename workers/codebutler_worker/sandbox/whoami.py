"""Who agents are, in words: never root inside walls, whoever started us. Pure."""

from __future__ import annotations

RUN_AS_USER = "run CodeButler as an ordinary user"


def identity(walls: str, uid: int, owner: int) -> tuple[bool, str]:
    """(whether that is well, one line) about agents behind ``walls``, in a repository of the user ``owner``, where
    CodeButler runs as ``uid``."""
    if uid != 0:
        return True, f"agents run as you (user {uid}), without any privilege"
    if walls == "none":
        return False, f"CodeButler runs as root, and without walls so do agents: {RUN_AS_USER}"
    if owner != 0:
        return True, f"CodeButler runs as root; agents become the repository's owner (user {owner})"
    if walls == "docker":
        return (
            False,
            f"CodeButler runs as root and the repository is root's: nothing is started there, {RUN_AS_USER}",
        )
    return False, (
        "CodeButler runs as root and the repository is root's: inside the walls agents are user 1000 without any "
        f"privilege, but a hole in the walls would be root's: give the repository to an ordinary user, or {RUN_AS_USER}"
    )

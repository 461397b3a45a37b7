"""Whose commits are made in a repository: the name and e-mail address that its owner has given git.

Agents see neither the owner's home nor a configuration that they could change, so both are handed to them. Only these
values are taken, and none from a file that the repository's configuration includes: an agent may have written that.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from codebutler.config.git_repo import ask_git
from codebutler.domain.errors import CodeButlerError

SCOPES = (("--local", "--no-includes"), ("--global", "--includes"), ("--system", "--includes"))
"""Where git looks, the nearest first. ``includeIf`` in the owner's own configuration counts, as it does for git."""
KEYS = r"^(user|author|committer)\.(name|email)$"
LONGEST = 200
CRUD = set("<>")
"""git leaves these out: they enclose the address."""


def committer_env(repo: Path, home: Path) -> dict[str, str]:
    """The variables by which git inside ``repo`` knows its author and committer (git(1)); those that the owner, whose
    home is ``home``, has not configured are missing. Blocking; reads anew each time."""
    found: dict[str, str] = {}
    for scope in SCOPES:
        for key, value in _configured(repo, home, scope).items():
            found.setdefault(key, value)
    return variables(found)


def variables(found: Mapping[str, str]) -> dict[str, str]:
    """The environment for what the configuration says; ``author.*`` and ``committer.*`` go before ``user.*``. Pure."""
    env = {}
    for role in ("author", "committer"):
        for part in ("name", "email"):
            if value := found.get(f"{role}.{part}", found.get(f"user.{part}", "")):
                env[f"GIT_{role}_{part}".upper()] = value
    return env


def parsed(output: bytes) -> dict[str, str]:
    """Key to value of what `git config -z` prints; the last of a key counts, what is no name or address does not."""
    found = {}
    for entry in output.split(b"\0"):
        key, newline, value = entry.decode(errors="replace").partition("\n")
        if newline and _is_plain(value.strip()):
            found[key] = value.strip()
    return found


def _configured(repo: Path, home: Path, scope: tuple[str, ...]) -> dict[str, str]:
    try:
        return parsed(ask_git(repo, "config", *scope, "-z", "--get-regexp", KEYS, home=home).stdout)
    except CodeButlerError:
        return {}


def _is_plain(value: str) -> bool:
    return (
        0 < len(value) <= LONGEST and value.isprintable() and not CRUD & set(value) and "\ufffd" not in value
    )

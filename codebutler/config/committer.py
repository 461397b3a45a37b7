"""Whose commits are made in a repository: the name and e-mail address that its owner has given git.

Agents see neither the owner's home nor a configuration that they could change, so both are handed to them. Only these
values are taken, and none from a file that the repository's configuration includes: an agent may have written that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from codebutler.config.git_repo import ask_git
from codebutler.domain.errors import CodeButlerError

SCOPES = (("--local", "--no-includes"), ("--global", "--includes"), ("--system", "--includes"))
"""Where git looks, the nearest first. ``includeIf`` in the owner's own configuration counts, as it does for git."""
KEYS = r"^(user|author|committer)\.(name|email)$"
ROLES, PARTS = ("author", "committer"), ("name", "email")
LONGEST = 200
CRUD = set("<>")
"""git leaves these out: they enclose the address."""


NAMING = '`git config --global user.name "NAME"` and `git config --global user.email ADDRESS`'
"""What to run where git knows nobody."""

Stamp = tuple[int, int, int] | None


class Committer:
    """Whose commits are made in ``repo``, whose owner's home is ``home``. Git is asked again only when a file that
    said so has changed, or nobody is known yet."""

    def __init__(self, repo: Path, home: Path) -> None:
        self._repo = repo
        self._home = home
        self._env: dict[str, str] = {}
        self._stamps: dict[Path, Stamp] = {}

    def env(self) -> dict[str, str]:
        """The variables by which git inside knows its author and committer (git(1)); those that the owner has not
        configured are missing. Blocking."""
        if not self._stamps or self._stamps != {path: _stamp(path) for path in self._stamps}:
            # A branch may be a condition of an include.
            usual = (self._repo / ".git/config", self._repo / ".git/HEAD", *_own_files(self._home))
            stamps = {path: _stamp(path) for path in usual}
            found: dict[str, str] = {}
            for scope in SCOPES:
                values, origins = _configured(self._repo, self._home, scope)
                found = {**values, **found}
                stamps |= {path: _stamp(path) for path in origins if path not in stamps}
            self._env = variables(found)
            # A worktree's configuration is elsewhere; and what is missing may come from a file that was not there.
            is_known = len(self._env) == len(ROLES) * len(PARTS) and (self._repo / ".git").is_dir()
            self._stamps = stamps if is_known else {}
        return self._env


def _own_files(home: Path) -> tuple[Path, ...]:
    xdg = os.environ.get("XDG_CONFIG_HOME") or home / ".config"
    return home / ".gitconfig", Path(xdg, "git/config"), home / ".config/git/config", Path("/etc/gitconfig")


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_ctime_ns


def variables(found: Mapping[str, str]) -> dict[str, str]:
    """The environment for what the configuration says; ``author.*`` and ``committer.*`` go before ``user.*``. Pure."""
    env = {}
    for role in ROLES:
        for part in PARTS:
            if value := found.get(f"{role}.{part}", found.get(f"user.{part}", "")):
                env[f"GIT_{role}_{part}".upper()] = value
    return env


def parsed(output: bytes) -> tuple[dict[str, str], set[str]]:
    """Key to value of what `git config -z --show-origin` prints, and the files; the last of a key counts, what is no
    name or address does not. Pure."""
    found = {}
    origins, entries = output.split(b"\0")[0:-1:2], output.split(b"\0")[1::2]
    for entry in entries:
        key, newline, value = entry.decode(errors="replace").partition("\n")
        if newline and _is_plain(value.strip()):
            found[key] = value.strip()
    return found, {os.fsdecode(origin.removeprefix(b"file:")) for origin in origins}


def _configured(repo: Path, home: Path, scope: tuple[str, ...]) -> tuple[dict[str, str], set[Path]]:
    try:
        asked = ask_git(repo, "config", *scope, "-z", "--show-origin", "--get-regexp", KEYS, home=home)
    except CodeButlerError:
        return {}, set()
    found, origins = parsed(asked.stdout)
    return found, {repo / origin for origin in origins}


def _is_plain(value: str) -> bool:
    return (
        0 < len(value) <= LONGEST and value.isprintable() and not CRUD & set(value) and "\ufffd" not in value
    )

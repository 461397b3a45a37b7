"""The author of commits in a repository: the name and e-mail address in its owner's git configuration.

Agents see neither the owner's home nor a configuration that they could change, so they get both values. Only
these are taken, and none from a file that the repository's configuration includes: an agent may have written
it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from codebutler.config.git_repo import ask_git
from codebutler.domain.errors import CodeButlerError

SCOPES = (("--local", "--no-includes"), ("--global", "--includes"), ("--system", "--includes"))
"""Where git looks, nearest first. ``includeIf`` in the owner's own configuration counts, as it does for git."""
KEYS = r"^(user|author|committer)\.(name|email)$"
ROLES, PARTS = ("author", "committer"), ("name", "email")
WORDS = re.compile(rb"name|email|include", re.IGNORECASE)
LARGEST_BYTES = 2**16
LONGEST = 200
CRUD = set("<>")
"""git leaves these characters out: they enclose the address."""


NAMING = '`git config --global user.name "NAME"` and `git config --global user.email ADDRESS`'
"""The commands to run if git has no identity."""

Stamp = tuple[int, int, int] | None


class Committer:
    """The author of commits in ``repo``, whose owner's home is ``home``. Git is asked again only if one of
    its files has changed, or while there is no author."""

    def __init__(self, repo: Path, home: Path) -> None:
        self._repo = repo
        self._home = home
        self._env: dict[str, str] = {}
        self._stamps: dict[Path, Stamp] = {}

    def env(self) -> dict[str, str]:
        """git's variables for author and committer (git(1)); values that the owner has not configured are
        missing. Blocking."""
        if not self._stamps or self._stamps != {path: _stamp(path) for path in self._stamps}:
            files = _files(self._repo, self._home)
            # An include may depend on the branch.
            usual = (self._repo / ".git/HEAD", Path("/etc/gitconfig"), *chain(*files))
            stamps = {path: _stamp(path) for path in usual}
            found: dict[str, str] = {}
            silent = [bool(each) and all(map(_names_nobody, each)) for each in files]
            for scope, is_silent in zip(SCOPES, silent, strict=True):
                values, origins = ({}, ()) if is_silent else _configured(self._repo, self._home, scope)
                found = {**values, **found}
                stamps |= {path: _stamp(path) for path in origins if path not in stamps}
            self._env = variables(found)
            # A worktree's configuration is elsewhere; and missing values may come from files that did not
            # exist.
            is_all = len(self._env) == len(ROLES) * len(PARTS) or silent == [True, True, False]
            self._stamps = stamps if is_all and (self._repo / ".git").is_dir() else {}
        return self._env


def _files(repo: Path, home: Path) -> tuple[tuple[Path, ...], ...]:
    """The files that git reads for each of SCOPES; none if only git knows them."""
    xdg = os.environ.get("XDG_CONFIG_HOME") or home / ".config"
    own = (home / ".gitconfig", Path(xdg, "git/config"), home / ".config/git/config")
    return (repo / ".git/config",) if (repo / ".git").is_dir() else (), own, ()


def _names_nobody(path: Path) -> bool:
    """Whether the file is missing, or contains none of the needed keys: this saves a process."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        content = os.read(fd, LARGEST_BYTES + 1)
    except OSError:
        return False
    finally:
        os.close(fd)
    return len(content) <= LARGEST_BYTES and not WORDS.search(content)


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_ctime_ns


def variables(found: Mapping[str, str]) -> dict[str, str]:
    """The environment for these settings; ``author.*`` and ``committer.*`` take precedence over ``user.*``.
    Pure."""
    env = {}
    for role in ROLES:
        for part in PARTS:
            if value := found.get(f"{role}.{part}", found.get(f"user.{part}", "")):
                env[f"GIT_{role}_{part}".upper()] = value
    return env


def parsed(output: bytes) -> tuple[dict[str, str], set[str]]:
    """Key to value from the output of `git config -z --show-origin`, and the files; the last value of a key
    counts, invalid names and addresses do not. Pure."""
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

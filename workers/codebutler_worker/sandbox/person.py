"""The user that programs run as when we are root: the owner of the working directory, with no way back."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from codebutler.config.git_repo import (
    NAMING,
    ROOTS_OWN,
    Committer,
    Owner,
    sudo_user,
    unreachable_because,
)
from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import SandboxUnavailableError
from codebutler.protocol.messages import Finding, fail, ok, warn
from codebutler_worker.sandbox.system import find_setpriv

# Which user agents run as, in words: never root, whoever started us.

Level = Literal["ok", "warn", "FAIL"]


def identity(sandbox: str, uid: int, owner: int, repo: str = "the repository") -> tuple[Level, str]:
    """(level, one line) for agents in the sandbox ``sandbox`` and in ``repo``, which belongs to the user ``owner``, if
    CodeButler runs as ``uid``. FAIL: nothing starts there."""
    if owner == 0 and (sandbox == "docker" or uid == 0):
        return "FAIL", ROOTS_OWN.format(repo=repo)
    if sandbox == "docker":
        whose = "" if owner == 1000 else ", the repository's owner"
        return "ok", f"agents run as user {owner}{whose}, without privileges"
    if uid != 0:
        return "ok", f"agents run as you (user {uid}), without privileges"
    return "ok", f"CodeButler runs as root; agents become the repository's owner (user {owner})"


HOMES = Path("/var/lib/codebutler/homes")
"""Homes for agents whose user has none."""


def as_owner(repo: Path, *needed: Path, uid: int | None = None) -> tuple[str, ...]:
    """What to put before a program that runs for ``repo`` without a sandbox; empty unless we are root (``uid``, None =
    find out). Also for trusted repositories: the program may belong to the owner, so root must not run it.

    No ``repo`` (``Path()``): for its future owner.

    Raises SandboxUnavailableError if ``repo`` belongs to root, or its owner cannot reach the paths in ``needed``.
    """
    if (os.geteuid() if uid is None else uid) != 0:
        return ()
    try:
        owner = Owner.of(repo.stat()) if repo != Path() else sudo_user(os.environ)
    except OSError as error:
        raise SandboxUnavailableError(f"{repo}: {error.strerror}: restore it") from error
    before = owner.become(find_setpriv(), repo)
    if why := unreachable_because(owner, *(path for path in needed if path.is_absolute())):
        raise SandboxUnavailableError(why)
    return before


def home_of_agents(repo: Path, ours: Path, uid: int | None = None) -> Path:
    """The HOME of agents in ``repo``, where their CLIs keep logins and sessions; it need not exist yet.

    ``ours`` unless we are root. Then ``ours`` if it belongs to the repository's owner, else the owner's own home, else
    one below HOMES. No ``repo`` (``Path()``): for its future owner.
    """
    if (os.geteuid() if uid is None else uid) != 0 or not repo.is_dir():
        return ours
    owner = Owner.at(repo) if repo != Path() else sudo_user(os.environ)
    if owner.is_root:
        return ours  # nothing is started
    return next((home for home in (ours, _home_of(owner)) if _is_theirs(home, owner)), HOMES / str(owner.uid))


def ensure_home(home: Path, repo: Path) -> None:
    """Create ``home`` if it is one below HOMES. Raises SandboxUnavailableError."""
    if home.parent != HOMES or home.is_dir():
        return
    owner = Owner.at(repo)
    try:
        HOMES.mkdir(mode=0o755, parents=True, exist_ok=True)
        home.mkdir(mode=0o700, exist_ok=True)
        os.chown(home, owner.uid, owner.gid, follow_symlinks=False)
    except OSError as error:
        raise SandboxUnavailableError(
            f"user {owner.uid} has no home directory, and none can be created at {home} ({error.strerror}): create one"
        ) from error


def _home_of(owner: Owner) -> Path:
    try:
        return Path(pwd.getpwuid(owner.uid).pw_dir)
    except KeyError:
        return Path("/nonexistent")


def _is_theirs(home: Path, owner: Owner) -> bool:
    try:
        return home.stat().st_uid == owner.uid and home != Path("/") and not unreachable_because(owner, home)
    except OSError:
        return False


# What `codebutler doctor` says about the user that agents run as: who it is, where its logins are, whether it can get
# to the repository.

NAME, EMAIL = "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"


def served_findings(sandbox: str, group: Sequence[RepoSettings], ours: Path) -> Iterator[Finding]:
    """Each finding once, for the repositories of ``group`` in the sandbox ``sandbox``; ``ours`` is our own home."""
    uid = os.geteuid()
    there = [Path(each.path) for each in group if each.path and Path(each.path).is_dir()]
    told = {identity(sandbox, uid, Owner.at(repo).uid, str(repo)) for repo in there}
    if not there:
        # For the future owner of a repository, who will not be root alone.
        told = {identity(sandbox, uid, uid or 1000)}
    for level, text in sorted(told):
        yield Finding(area="sandbox", subject="user", level=level, text=text)
    yield from _commits(there, ours)
    if uid == 0:
        theirs = [(repo, Owner.at(repo)) for repo in there if not Owner.at(repo).is_root]
        for repo, owner in theirs:
            if why := unreachable_because(owner, repo):
                yield fail("sandbox", "user", why)
        homes = {(home_of_agents(repo, ours), owner.uid) for repo, owner in theirs}
        yield from (_home_finding(home, owner) for home, owner in sorted(homes))


def _commits(repos: Sequence[Path], ours: Path) -> Iterator[Finding]:
    envs = [(repo, Committer(repo, home_of_agents(repo, ours)).env()) for repo in repos]
    names = {f"{env[NAME]} <{env[EMAIL]}>" for _, env in envs if NAME in env and EMAIL in env}
    if names:
        yield ok("sandbox", "commits", f"commits are made as {', '.join(sorted(names))}")
    for repo in [repo for repo, env in envs if NAME not in env or EMAIL not in env]:
        yield warn("sandbox", "commits", f"git has no name and e-mail address for {repo}: run {NAMING}")


def _home_finding(home: Path, uid: int) -> Finding:
    if home.parent == HOMES:
        return warn(
            "sandbox",
            "home",
            f"user {uid} has no home, so agents use {home}, and they cannot read root's logins: "
            "log in as that user there, or set API keys, which never get into the sandbox",
        )
    return ok("sandbox", "home", f"agents' logins and sessions are those in {home}, as user {uid}")

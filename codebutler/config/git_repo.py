"""A repository as git knows it: its root, its tracked files, its owner, the author of commits in it, and a remote one's
URL.

Git runs nothing that the repository configures. If root started us, agents (and git, outside) become the repository's
owner, who is never root.

Agents see neither the owner's home nor a configuration that they could change, so they get the name and the e-mail
address in the owner's git configuration. Only these are taken, and none from a file that the repository's configuration
includes: an agent may have written it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Literal, Self

from msgspec import Struct

from codebutler.domain.errors import CodeButlerError, SandboxUnavailableError
from codebutler.platform.system import this_system

GIT_TIMEOUT_S = 20
NOT_TRACKED = 1
"""Exit code of `git ls-files --error-unmatch` for an unknown path; 128: it could not look."""
# A repository's own configuration may name programs for git to run, and files in a work tree may look like a
# bare repository with such a configuration.
_HARMLESS = (
    "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.bareRepository=explicit",
)  # fmt: skip
# No transport is allowed: a repository that claims to be a partial clone would make git fetch, with any
# program.
BOUNDED = {"GIT_ALLOC_LIMIT": "512m"}
"""For git outside the sandbox: it ends with an error instead of holding a larger object at once. A few bytes in a pack
can be a delta that unfolds to any size."""
BOUNDED_PINS = (("core.bigFileThreshold", "256m"), ("pack.threads", "1"))
"""Larger files are streamed, and one object is unfolded at a time."""
_ENV = {
    "LC_ALL": "C",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    **BOUNDED,
}
ORDINARY_ID = 1000
RUN_AS_USER = "run CodeButler as an ordinary user"
ROOTS_OWN = (
    "{repo} belongs to root, and agents do not run as root: give it to an ordinary user "
    "(chown -R 1000:1000 {repo}), or better, " + RUN_AS_USER
)
BARRED = (
    "agents run as user {uid}, who cannot reach {path}: {barrier} is closed to other users; "
    "move it, or run `chmod o+x {barrier}`"
)
HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?"
_HTTPS = re.compile(rf"https://(?P<login>[^@/\s]+@)?(?P<host>{HOST})/(?P<path>[^\s?#]+)")
_SSH = re.compile(rf"ssh://(?P<login>[A-Za-z0-9_][A-Za-z0-9_.-]*@)?(?P<host>{HOST})/(?P<path>[^\s?#]+)")
_SCP = re.compile(
    r"(?P<login>[A-Za-z0-9_][A-Za-z0-9_.-]*@)?(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*):(?P<path>[^\s:-][^\s:]*)"
)
# What root gives up for good: its groups, all capabilities, and any way to regain them (sudo, su).
GIVEN_UP = ("--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")
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


def repo_root(path: Path) -> Path:
    """The top of the work tree that holds ``path``, without links.

    Raises CodeButlerError, in one line, if git or the directory is missing, it is no work tree, or its git
    directory is elsewhere.
    """
    path = path.absolute()
    if shutil.which("git") is None:
        raise CodeButlerError(
            "git is not installed: install it (apt-get install git, or xcode-select --install)"
        )
    if not path.is_dir():
        raise CodeButlerError(f"{path} is not a directory: pass the path of a git repository")
    if (owner := _somebody(path)) is not None and (why := unreachable_because(owner, path)):
        raise CodeButlerError(why)
    result = ask_git(path, "rev-parse", "--show-toplevel")
    if result.returncode == 0:
        root = Path(os.fsdecode(result.stdout.removesuffix(b"\n"))).resolve()
        _refuse_elsewhere(root, path)
        _refuse_separate(root)
        return root
    reason = result.stderr.decode(errors="replace")
    if "dubious ownership" in reason:
        if owner is not None:
            raise CodeButlerError(
                f"not all of {path} belongs to user {owner.uid}: run `chown -R {owner.uid}:{owner.gid} {path}`"
            )
        raise CodeButlerError(
            f"git does not trust {path}, because another user owns it: "
            f"run `git config --global --add safe.directory {shlex.quote(str(path))}`"
        )
    if "work tree" in reason or "bare repository" in reason:
        raise CodeButlerError(f"{path} is a bare repository: pass one with a working tree")
    raise CodeButlerError(f"{path} is not a git repository: run `git init` there, or pass another path")


def _refuse_elsewhere(root: Path, path: Path) -> None:
    """``core.worktree`` can name any directory as the work tree: agents could then write there."""
    if not os.path.lexists(root / ".git") or not path.resolve().is_relative_to(root):
        raise CodeButlerError(
            f"{path} names {root} as its work tree, which has no .git: "
            "remove core.worktree from its configuration, or register another repository"
        )


def _refuse_separate(root: Path) -> None:
    """A worktree has its own git directory beside the repository's; for anything else with a ``.git`` file
    the owner of that directory is unknown, so no agent can be sandboxed (gitrepository-layout(5))."""
    if (root / ".git").is_dir():
        return
    asked = ask_git(root, "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
    own, common = asked.stdout[: len(asked.stdout) // 2], asked.stdout[len(asked.stdout) // 2 :]
    if own == common and asked.returncode == 0:
        raise CodeButlerError(
            f"{root} is a submodule, or has its git directory elsewhere: register the repository it belongs to"
        )


def is_tracked(repo: Path, path: str) -> bool:
    """Whether git tracks ``path``: then it came with the repository's content, not from its owner.

    ``path`` may contain git's wildcards; case does not matter, as on some file systems. True if git cannot
    tell. Raises CodeButlerError if git does not answer or is missing.
    """
    return ask_git(repo, "ls-files", "--error-unmatch", "--", f":(icase){path}").returncode != NOT_TRACKED


def _somebody(directory: Path) -> Owner | None:
    """The user as whom root runs git, which serves users only their own repositories; None = our own."""
    owner = Owner.at(directory) if os.geteuid() == 0 and directory.exists() else None
    return None if owner is None or owner.is_root else owner


def ask_git(directory: Path, *args: str, home: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """Git's answer in ``directory``, as its owner if we are root. ``home``: whose own configuration counts;
    None = ours, or nobody's if we are root. Raises CodeButlerError if git does not answer or is missing."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    owner = _somebody(directory)
    if owner is not None and home is None:
        home = Path("/nonexistent")
    own = {} if home in (None, Path.home()) else {"HOME": str(home), "XDG_CONFIG_HOME": ""}
    try:
        return subprocess.run(
            ["git", *_HARMLESS, "-C", str(directory.absolute()), *args],
            env={**env, **_ENV, **own},
            user=None if owner is None else owner.uid,
            group=None if owner is None else owner.gid,
            extra_groups=None if owner is None else (),
            # The owner may be unable to read ours.
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
        )
    except FileNotFoundError:
        raise CodeButlerError("git is not installed, or not in PATH: install it") from None
    except subprocess.TimeoutExpired:
        raise CodeButlerError(f"git does not answer in {directory}: is its disk reachable?") from None


class Owner(Struct, frozen=True):
    """An ordinary user, by number, as whom root starts programs."""

    uid: int
    gid: int

    @classmethod
    def of(cls, found: os.stat_result) -> Self:
        """The owner. If its group is root's, which is as good as root for some files, the owner's own group
        only."""
        return cls(found.st_uid, found.st_gid or found.st_uid)

    @classmethod
    def at(cls, path: Path) -> Self:
        """The owner of ``path``. Raises OSError as stat(2)."""
        return cls.of(path.stat())

    @property
    def is_root(self) -> bool:
        """Whether it is root's own, for whom no agent works."""
        return self.uid == 0

    def become(self, setpriv: Path | None, repo: Path) -> tuple[str, ...]:
        """What root puts before a command so that it runs as the owner of ``repo``, who this is. Pure.

        Raises SandboxUnavailableError if that is root, or setpriv(1) is missing.
        """
        if self.uid == 0:
            raise SandboxUnavailableError(ROOTS_OWN.format(repo=repo))
        if setpriv is None:
            raise SandboxUnavailableError(
                "root needs setpriv to start agents as the repository's owner: install util-linux, or "
                f"{RUN_AS_USER}"
            )
        return (str(setpriv), f"--reuid={self.uid}", f"--regid={self.gid}", *GIVEN_UP, "--")


def sudo_user(env: Mapping[str, str]) -> Owner:
    """The user before sudo(8), according to ``env``; without one the first ordinary user. Pure."""
    uid, gid = (env.get(name, "") for name in ("SUDO_UID", "SUDO_GID"))
    if uid.isdecimal() and int(uid):
        return Owner(int(uid), int(gid) if gid.isdecimal() and int(gid) else int(uid))
    return Owner(ORDINARY_ID, ORDINARY_ID)


def unreachable_because(owner: Owner, *paths: Path) -> str:
    """One line on what keeps ``owner``, with only their own group, from the first of ``paths`` that they cannot reach,
    links resolved, and what to do; "" if nothing does.

    By the modes alone: a directory with an access control list is assumed to let them in.
    """
    for path in paths:
        for directory in reversed(path.resolve().parents):
            found = directory.stat()
            if found.st_uid == owner.uid:
                allowed = found.st_mode & 0o100
            elif found.st_gid == owner.gid:
                allowed = found.st_mode & 0o010
            else:
                allowed = found.st_mode & 0o001
            if not allowed and not this_system().has_access_list(directory):
                return BARRED.format(path=path, uid=owner.uid, barrier=directory)
    return ""


class Address(Struct, frozen=True):
    """A remote repository's URL. ``host`` includes its port; ``path`` has no leading slash and no ``.git``. ``login``:
    what precedes the host, with its ``@``."""

    kind: Literal["https", "ssh"]
    login: str
    host: str
    path: str

    @property
    def shown(self) -> str:
        """For display: without user name and password."""
        return f"{self.host}/{self.path}"


def address_in(url: str) -> Address | None:
    """The address that a URL names; None for anything else."""
    for pattern in (_HTTPS, _SSH, _SCP):
        is_fit = url.isprintable() and "::" not in url and ("://" in url) == (pattern is not _SCP)
        if is_fit and (found := pattern.fullmatch(url)):
            path = found["path"].strip("/").removesuffix(".git")
            if path and not path.startswith("-") and ".." not in path.split("/"):
                is_https = pattern is _HTTPS
                return Address("https" if is_https else "ssh", found["login"] or "", found["host"], path)
    return None


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

"""Is this a git repository, and what does it track? Git runs nothing that the repository configures."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from codebutler.config.ownership import Owner, barred
from codebutler.domain.errors import CodeButlerError

GIT_TIMEOUT_S = 20
NOT_TRACKED = 1
"""What `git ls-files --error-unmatch` says of a path it does not know; 128: it could not look."""
# A repository's own configuration may name programs for git to run, and files in a work tree may look like a
# bare repository with such a configuration.
_HARMLESS = (
    "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.bareRepository=explicit",
)  # fmt: skip
# No transport is allowed: a repository that pretends to be partial would make git fetch, by any program.
_ENV = {"LC_ALL": "C", "GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}


def repo_root(path: Path) -> Path:
    """The top of the work tree that holds ``path``, without links.

    Raises CodeButlerError, in one line, if git or the directory is missing, it is no work tree, or one whose git
    directory lies elsewhere.
    """
    path = path.absolute()
    if shutil.which("git") is None:
        raise CodeButlerError(
            "git is not installed: install it (apt-get install git, or xcode-select --install)"
        )
    if not path.is_dir():
        raise CodeButlerError(f"{path} is not a directory: pass the path of a git repository")
    if (owner := _somebody(path)) is not None and (why := barred(path, owner)):
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
        raise CodeButlerError(f"{path} is a bare repository: pass one with a work tree")
    raise CodeButlerError(f"{path} is not a git repository: run `git init` there, or pass another path")


def _refuse_elsewhere(root: Path, path: Path) -> None:
    """``core.worktree`` can name any directory as the work tree: agents would get that one to write in."""
    if not os.path.lexists(root / ".git") or not path.resolve().is_relative_to(root):
        raise CodeButlerError(
            f"{path} names {root} as its work tree, which has no .git: "
            "remove core.worktree from its configuration, or register another repository"
        )


def _refuse_separate(root: Path) -> None:
    """A worktree has a git directory of its own beside the repository's; of what else has a file for a ``.git``
    nobody can tell whose that directory is, so no agent can be walled in (gitrepository-layout(5))."""
    if (root / ".git").is_dir():
        return
    asked = ask_git(root, "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
    own, common = asked.stdout[: len(asked.stdout) // 2], asked.stdout[len(asked.stdout) // 2 :]
    if own == common and asked.returncode == 0:
        raise CodeButlerError(
            f"{root} is a submodule, or has its git directory elsewhere: register the repository it belongs to"
        )


def is_tracked(repo: Path, path: str) -> bool:
    """Whether git tracks ``path``: then it came with the repository's content, not from its owner's hand.

    ``path`` may hold git's wildcards; upper and lower case are the same, as they are to some file systems. Where git
    cannot tell, it may. Raises CodeButlerError if git does not answer or is not there.
    """
    return ask_git(repo, "ls-files", "--error-unmatch", "--", f":(icase){path}").returncode != NOT_TRACKED


def _somebody(directory: Path) -> Owner | None:
    """As whom root asks git, which serves each user his own repositories only; None for as who we are."""
    owner = Owner.at(directory) if os.geteuid() == 0 and directory.exists() else None
    return None if owner is None or owner.is_root else owner


def ask_git(directory: Path, *args: str, home: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """What git says in ``directory``, as its owner where we are root. ``home``: whose own configuration counts; None =
    ours, and nobody's where we are root. Raises CodeButlerError if git does not answer or is not there."""
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
            # Ours may be out of the owner's reach.
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
        )
    except FileNotFoundError:
        raise CodeButlerError("git is not installed, or not in PATH: install it") from None
    except subprocess.TimeoutExpired:
        raise CodeButlerError(f"git does not answer in {directory}: is its disk reachable?") from None

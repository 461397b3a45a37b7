"""Is this a git repository, and what does it track? Git runs nothing that the repository configures."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from codebutler.errors import CodeButlerError

GIT_TIMEOUT_S = 20
# A repository's own configuration may name programs for git to run
_HARMLESS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


def repo_root(path: Path) -> Path:
    """The top of the work tree that holds ``path``, without links.

    Raises CodeButlerError, in one line, if git or the directory is missing, or it is no work tree.
    """
    if shutil.which("git") is None:
        raise CodeButlerError(
            "git is not installed: install it (apt-get install git, or xcode-select --install)"
        )
    if not path.is_dir():
        raise CodeButlerError(f"{path} is not a directory: pass the path of a git repository")
    result = _git(path, "rev-parse", "--show-toplevel")
    if result.returncode == 0:
        return Path(os.fsdecode(result.stdout.removesuffix(b"\n"))).resolve()
    reason = result.stderr.decode(errors="replace")
    if "dubious ownership" in reason:
        raise CodeButlerError(
            f"git does not trust {path}, because another user owns it: "
            f"run `git config --global --add safe.directory {path}`"
        )
    if "work tree" in reason:
        raise CodeButlerError(f"{path} is a bare repository: pass one with a work tree")
    raise CodeButlerError(f"{path} is not a git repository: run `git init` there, or pass another path")


def is_tracked(repo: Path, path: str) -> bool:
    """Whether git tracks ``path``: then it came with the repository's content, not from its owner's hand."""
    return _git(repo, "ls-files", "--error-unmatch", "--", path).returncode == 0


def _git(directory: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(
            ["git", *_HARMLESS, "-C", str(directory), *args],
            env={**env, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise CodeButlerError(f"git does not answer in {directory}: is its disk reachable?") from None

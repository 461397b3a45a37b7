"""A git worktree for each conversation (``agent.isolation`` "worktree"), below ``.codebutler/worktrees``.

No git of the host's is asked, and agents cannot add worktrees (theirs would be beyond the walls): the files that make
one are written here, as gitrepository-layout(5) has them, and git fills it inside the sandbox.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path

from codebutler_worker.sandbox.checkout import inspect_checkout
from codebutler_worker.sandbox.destinations import status_beneath
from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.store.state_dir import STATE_DIR, check_state_dir, prepare_state_dir
from codebutler_worker.tree.git import NOT_GIT, Git, GitError

WORKTREES = "worktrees"
BRANCHES = "codebutler/"
READY = "ready"
FILL_S = 600.0
NO_COMMIT = "a worktree begins at a commit, and there is none here yet: make the first one"
HEAD = "git rev-parse -q --verify 'HEAD^{commit}' || :"
# The branch is there already if the worktree was taken away and its conversation goes on.
FILL = """
git reset -q --hard || exit 1
if git show-ref -q --verify "refs/heads/$1"; then git checkout -q "$1"; else git checkout -q -b "$1"; fi
"""


def name_of(conversation: str) -> str:
    """What a conversation's worktree is called."""
    return re.sub(r"[^A-Za-z0-9]+", "-", conversation).strip("-").lower()


def branch_of(conversation: str) -> str:
    """The branch that its worktree begins on."""
    return f"{BRANCHES}{name_of(conversation)}"


class Worktrees:
    """The worktrees of one repository. ``home`` is where the sandbox's HOME is."""

    def __init__(self, repo: Path, sandbox: Sandbox, home: Path) -> None:
        self._repo = repo
        self._sandbox = sandbox
        self._home = home
        self._one_by_one = asyncio.Lock()

    async def ensure(self, conversation: str) -> Path:
        """The conversation's worktree, made at the repository's HEAD if there is none: what is not committed is not
        in it. Raises GitError with one line, and SandboxUnavailableError."""
        async with self._one_by_one:
            if (found := existing(self._repo, conversation)) is not None:
                return found
            main = Git(self._sandbox, self._repo, self._home)
            if not main.has_repository():
                raise GitError(NOT_GIT)
            commit = (await main.run(HEAD)).output.decode(errors="replace").strip()
            if not re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", commit):
                raise GitError(NO_COMMIT)
            try:
                tree = await asyncio.to_thread(_lay_out, self._repo, name_of(conversation), commit)
                await Git(self._sandbox, tree, self._home).run(FILL, branch_of(conversation), limit_s=FILL_S)
                await asyncio.to_thread(_write, tree / STATE_DIR, READY, "")
            except OSError as error:
                raise GitError(f"no worktree can be made: {error.strerror or error}") from error
            return tree


def existing(repo: Path, conversation: str) -> Path | None:
    """The conversation's worktree, None if it has none that is complete."""
    tree = repo / STATE_DIR / WORKTREES / name_of(conversation)
    try:
        return tree if tree.is_dir() and status_beneath(tree, f"{STATE_DIR}/{READY}") else None
    except OSError:
        return None


def _lay_out(repo: Path, name: str, commit: str) -> Path:
    """An empty worktree whose HEAD is ``commit``, in the place of what is left of an earlier one."""
    checkout = inspect_checkout(repo)
    (entries,) = checkout.closed
    state = repo / STATE_DIR
    check_state_dir(state)
    parent, entry, tree = state / WORKTREES, f"codebutler-{name}", state / WORKTREES / name
    _make(state, WORKTREES, checkout.owner.uid, checkout.owner.gid)
    for directory, leaf in ((entries, entry), (parent, name)):
        _remove(directory, leaf)
        _make(directory, leaf, checkout.owner.uid, checkout.owner.gid)
    for root, file, text in (
        (entries / entry, "HEAD", f"{commit}\n"),
        (entries / entry, "commondir", "../..\n"),
        # Programs do not see each other's worktrees: without it `git worktree prune` of one would take the others.
        (entries / entry, "locked", "of a conversation of CodeButler\n"),
        (entries / entry, "gitdir", f"{tree}/.git\n"),
        (tree, ".git", f"gitdir: {entries / entry}\n"),
    ):
        _write(root, file, text)
    prepare_state_dir(tree)
    return tree


def _make(parent: Path, name: str, uid: int, gid: int) -> None:
    """A directory of whoever owns the repository, unless it is there."""
    at = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.mkdir(name, 0o755, dir_fd=at)
        os.chown(name, uid, gid, dir_fd=at, follow_symlinks=False)
    except FileExistsError:
        status_beneath(parent, name)
    finally:
        os.close(at)


def _remove(parent: Path, name: str) -> None:
    at = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        shutil.rmtree(name, dir_fd=at)
    except FileNotFoundError:
        pass
    finally:
        os.close(at)


def _write(directory: Path, name: str, text: str) -> None:
    """A new file in ``directory``, of whoever owns that."""
    at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        owner = os.fstat(at)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, 0o644, dir_fd=at), "w") as stream:
            stream.write(text)
            os.fchown(stream.fileno(), owner.st_uid, owner.st_gid)
    finally:
        os.close(at)

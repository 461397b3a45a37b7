"""A git worktree for each conversation (``agent.isolation`` "worktree"), below ``.codebutler/worktrees``.

No git of the host's is asked, and agents cannot add worktrees (theirs would be beyond the walls): the files that make
one are written here, as gitrepository-layout(5) has them, and git fills it inside the sandbox.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import astuple, dataclass
from pathlib import Path

from codebutler.config.git_repo import Owner
from codebutler.config.registry import unaccented
from codebutler_worker.sandbox.checkout import inspect_checkout
from codebutler_worker.sandbox.destinations import (
    make_directory,
    make_file,
    open_beneath,
    remove,
    status_beneath,
)
from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.store.state_dir import SHARED_DIRS, STATE_DIR, check_state_dir, prepare_state_dir
from codebutler_worker.tree.tree import NOT_GIT, Git, GitError

WORKTREES = "worktrees"
READY = "ready"
FILL_S = 600.0
NO_COMMIT = "a worktree begins at a commit, and there is none here yet: make the first one"
HEAD = "git rev-parse -q --verify 'HEAD^{commit}' || :"
FILL = """
has() { git show-ref -q --verify "refs/heads/$1"; }
had=$1; shift
git reset -q --hard || exit 1
if has "$had"; then git checkout -q "$had" && echo "$had"; exit; fi
for name in "$@"; do has "$name" || { git checkout -q -b "$name" && echo "$name"; exit; }; done
exit 1
"""
"""Arguments: the branch that the conversation may have had, and names for a new one. Prints the branch."""
UNUSED = """
[ "$(git rev-parse -q --verify HEAD)" = "$2" ] && [ "$(git symbolic-ref -q HEAD)" = "refs/heads/$1" ] || exit 0
git reflog show --format=%H HEAD -- | grep -qv "^$2" && exit 0
[ ! -e "$(git rev-parse --git-dir)/modules" ] || exit 0
changed=$(git status --porcelain --ignored -uall --ignore-submodules=none -- . ':(exclude,top).codebutler') || exit 1
[ -z "$changed" ] && echo unused
exit 0
"""
"""Arguments: the branch, and the commit it began at. Prints a word if there is nothing in the worktree but that commit:
no other commit was ever checked out in it, and no file is changed, new or ignored."""
FORGET = 'git update-ref -d "refs/heads/$1" "$2"'
"""Fails where the branch is not at that commit any more."""
Release = Callable[[str], Awaitable[None]]
BRANCHES = "codebutler/"
SLUG_CHARS = 32
DIGITS = (4, 8, 16)
"""Of the conversation's digest: more where a name is taken."""
_FILLERS = re.compile(
    r"an?|and|are|at|be|can|could|do|for|from|hello|hey|hi|i|in|is|it|let|lets|like|me|my|need|of|on|or|our|please|"
    r"should|so|some|that|the|then|there|these|this|to|us|want|was|we|will|with|would|you|your"
)


def name_of(conversation: str) -> str:
    """What a conversation's worktree is called."""
    return re.sub(r"[^A-Za-z0-9]+", "-", conversation).strip("-").lower()


@dataclass(frozen=True, slots=True)
class BranchRecord:
    """A conversation's branch and the commit it began at."""

    branch: str
    commit: str


class Worktrees:
    """The worktrees of one repository. ``home`` is where the sandbox's HOME is."""

    def __init__(self, repo: Path, sandbox: Sandbox, home: Path) -> None:
        self._repo = repo
        self._sandbox = sandbox
        self._home = home
        self._one_by_one = asyncio.Lock()

    async def ensure(self, conversation: str, task: str) -> Path:
        """The conversation's worktree, made at the repository's HEAD if there is none: what is not committed is not
        in it. A new branch is named after ``task``. Raises GitError with one line, and SandboxUnavailableError."""
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
                known = await asyncio.to_thread(begun, self._repo, conversation)
                # Without a record: what earlier versions called the branch.
                had = known.branch if known else f"{BRANCHES}{name_of(conversation)}"
                names = (had, *names_of(conversation, task))
                git = Git(self._sandbox, tree, self._home, filling=True)
                said = await git.run(FILL, *names, limit_s=FILL_S)
                branch = said.output.decode(errors="replace").strip()
                if known is None or known.branch != branch:
                    await asyncio.to_thread(_record, self._repo, conversation, f"{branch} {commit}\n")
                await asyncio.to_thread(make_file, tree / STATE_DIR, READY, "")
            except OSError as error:
                raise GitError(f"cannot create a worktree: {error.strerror or error}") from error
            return tree

    async def tidy(self, conversation: str, release: Release | None = None) -> str:
        """Take the conversation's worktree and branch away if nothing was changed or committed in it; the branch if
        they stay, "" if there is none. Nothing may run in it; ``release`` lets go what else holds it.

        Raises GitError and SandboxUnavailableError."""
        async with self._one_by_one:
            tree = existing(self._repo, conversation)
            known = begun(self._repo, conversation)
            if tree is None or known is None:
                return ""
            if (
                _holds_files(tree)
                or not (await Git(self._sandbox, tree, self._home).run(UNUSED, *astuple(known))).output
            ):
                return known.branch
            if release is not None:
                await release(conversation)
            try:
                await asyncio.to_thread(_take_away, self._repo, name_of(conversation))
                await Git(self._sandbox, self._repo, self._home).run(FORGET, *astuple(known))
                await asyncio.to_thread(remove, self._repo / STATE_DIR / WORKTREES, record_of(conversation))
            except OSError as error:
                raise GitError(f"cannot remove an unused worktree: {error.strerror or error}") from error
            return ""


def record_of(conversation: str) -> str:
    """The file that says how the conversation's branch is called: beside the worktree, where no agent writes."""
    return f"{name_of(conversation)}.branch"


def begun(repo: Path, conversation: str) -> BranchRecord | None:
    """What the record says; None if there is none."""
    try:
        words = (repo / STATE_DIR / WORKTREES / record_of(conversation)).read_text().split()
    except OSError:
        return None
    return BranchRecord(*words) if len(words) == 2 else None


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
    _make(state, WORKTREES, checkout.owner)
    for directory, leaf in ((entries, entry), (parent, name)):
        remove(directory, leaf)
        _make(directory, leaf, checkout.owner)
    for root, file, text in (
        (entries / entry, "HEAD", f"{commit}\n"),
        (entries / entry, "commondir", "../..\n"),
        # Programs do not see each other's worktrees: without it `git worktree prune` of one would take the others.
        (entries / entry, "locked", "of a conversation of CodeButler\n"),
        (entries / entry, "gitdir", f"{tree}/.git\n"),
        (tree, ".git", f"gitdir: {entries / entry}\n"),
    ):
        make_file(root, file, text)
    prepare_state_dir(tree)
    return tree


def _holds_files(tree: Path) -> bool:
    """Whether agents were given files there, or made some where git does not look. What cannot be told may."""
    try:
        return any(_has_entries(tree, f"{STATE_DIR}/{name}") for name in SHARED_DIRS)
    except OSError:
        return True


def _has_entries(tree: Path, directory: str) -> bool:
    at = open_beneath(tree, directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(at) as entries:
            return any(entries)
    finally:
        os.close(at)


def _take_away(repo: Path, name: str) -> None:
    (entries,) = inspect_checkout(repo).closed
    remove(repo / STATE_DIR / WORKTREES, name)
    remove(entries, f"codebutler-{name}")


def _record(repo: Path, conversation: str, text: str) -> None:
    parent = repo / STATE_DIR / WORKTREES
    remove(parent, record_of(conversation))
    make_file(parent, record_of(conversation), text)


def _make(parent: Path, name: str, owner: Owner) -> None:
    if status_beneath(parent, name) is None:
        make_directory(parent, name, 0o755, owner)


def names_of(conversation: str, task: str) -> tuple[str, ...]:
    """Names for its branch, shortest first: ``codebutler/fix-login-bug-3f2a``. Safe for git and any file system."""
    digest = hashlib.sha256(conversation.encode()).hexdigest()
    return tuple(f"{BRANCHES}{slug(task)}-{digest[:digits]}" for digits in DIGITS)


def slug(task: str) -> str:
    """The first words of the task that say something: lower-case ASCII letters and digits, joined by ``-``."""
    words = re.findall(r"[a-z0-9]+", unaccented(task[:500]).lower().replace("'", ""))
    shown = ""
    for word in [word for word in words if not _FILLERS.fullmatch(word)] or words:
        longer = f"{shown}-{word}" if shown else word[:SLUG_CHARS]
        if len(longer) > SLUG_CHARS:
            break
        shown = longer
    return shown or "task"

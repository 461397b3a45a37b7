"""A git worktree for each conversation (``agent.isolation`` "worktree"), below ``.codebutler/worktrees``, its branch
and its state.

The host's git is not used, and agents cannot add worktrees (theirs would be outside the sandbox): we write
the files that make one, as in gitrepository-layout(5), and git fills it inside the sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct
from msgspec.structs import astuple

from codebutler.config.git_repo import Owner
from codebutler.config.registry import strip_accents
from codebutler_worker.sandbox.checkout import inspect_checkout
from codebutler_worker.sandbox.destinations import (
    make_directory,
    make_file,
    open_beneath,
    remove,
    status_beneath,
)
from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.store.opening import SHARED_DIRS, STATE_DIR, check_state_dir, prepare_state_dir
from codebutler_worker.tree.scripts import EXPIRE, FILL, KEEP, STATE, UNUSED
from codebutler_worker.tree.tree import COMMIT_ID, UNEXPECTED, Git, GitError, Tree

WORKTREES = "worktrees"
READY = "ready"
FILL_S = 600.0
REMOVALS = 40
REMOVE_AGAIN_S = 0.05
NO_COMMIT = "a worktree starts from a commit, and this repository has none yet: make the first one"
HEAD = "git rev-parse -q --verify 'HEAD^{commit}' || :"
FORGET = 'git update-ref -d "refs/heads/$1" "$2"'
"""Fails if the branch is no longer at that commit."""
DISCARDED = "refs/codebutler-discarded"
"""The content of removed worktrees, for KEPT_DAYS. Not below refs/codebutler, where new snapshots replace old
ones."""
KEPT_DAYS = 30
GONE = "this thread has no worktree: nothing has been changed in it"
RUNNING = "a run is under way in this thread: wait until it ends, or say `!stop`"
CHANGED = "the worktree has changed since you were asked: say `!discard` again"
Check = Callable[[], Awaitable[bool]]
Release = Callable[[str], Awaitable[None]]
BRANCHES = "codebutler/"
SLUG_CHARS = 32
DIGITS = (4, 8, 16)
"""Characters of the conversation's digest: more if a name is taken."""
_FILLERS = re.compile(
    r"an?|and|are|at|be|can|could|do|for|from|hello|hey|hi|i|in|is|it|let|lets|like|me|my|need|of|on|or|our|please|"
    r"should|so|some|that|the|then|there|these|this|to|us|want|was|we|will|with|would|you|your"
)
SIZE_S = 20.0
NO_TARGET = "the repository itself has a detached HEAD: switch to a branch there (`git switch NAME`)"
TARGET = "git symbolic-ref -q --short HEAD || echo; git rev-parse -q --verify 'HEAD^{commit}' || :"
SIZE = "du -sk . 2>/dev/null | cut -f 1"


def name_of(conversation: str) -> str:
    """The name of a conversation's worktree."""
    return re.sub(r"[^A-Za-z0-9]+", "-", conversation).strip("-").lower()


class BranchRecord(Struct, frozen=True):
    """A conversation's branch and the commit it started at."""

    branch: str
    commit: str


class Target(Struct, frozen=True):
    """The repository's own checkout, into which threads are merged."""

    branch: str
    commit: str


class WorktreeState(Struct, frozen=True, kw_only=True):
    """One worktree. ``changed`` are its uncommitted paths, new ones included, ``unmerged`` counts commits;
    ``unfinished``: a merge or a rebase is; ``holds_more``: files of the conversation, or git repositories in
    it."""

    path: Path
    head: str
    branch: str
    unmerged: int
    changed: tuple[str, ...] = ()
    unfinished: bool = False
    holds_more: bool = False

    @property
    def is_saved(self) -> bool:
        """Whether deleting it loses nothing."""
        return not (self.unmerged or self.changed or self.unfinished or self.holds_more)


class Worktrees:
    """The worktrees of one repository. ``home`` is the sandbox's HOME; ``release`` releases what else a
    conversation holds. Changes hold ``alone``."""

    def __init__(self, repo: Path, sandbox: Sandbox, home: Path, release: Release | None = None) -> None:
        self.repo = repo
        self.alone = asyncio.Lock()
        self._sandbox = sandbox
        self._home = home
        self._release = release

    def git(self, workdir: Path) -> Git:
        """Git in one of the working trees."""
        return Git(self._sandbox, workdir, self._home)

    async def ensure(self, conversation: str, task: str) -> Path:
        """The conversation's worktree, created at the repository's HEAD if there is none: uncommitted changes
        are not in it. A new branch is named after ``task``. Raises GitError with one line, and
        SandboxUnavailableError."""
        async with self.alone:
            if (found := existing(self.repo, conversation)) is not None:
                return found
            main = self.git(self.repo)
            commit = (await main.run(HEAD)).output.decode(errors="replace").strip()
            if not COMMIT_ID.fullmatch(commit):
                raise GitError(NO_COMMIT)
            try:
                tree = await asyncio.to_thread(_lay_out, self.repo, name_of(conversation), commit)
                known = await asyncio.to_thread(begun, self.repo, conversation)
                # Without a record: the branch's name in earlier versions.
                had = known.branch if known else f"{BRANCHES}{name_of(conversation)}"
                names = (had, *names_of(conversation, task))
                git = Git(self._sandbox, tree, self._home, filling=True)
                said = await git.run(FILL, *names, limit_s=FILL_S)
                branch = said.output.decode(errors="replace").strip()
                if known is None or known.branch != branch:
                    await asyncio.to_thread(_record, self.repo, conversation, f"{branch} {commit}\n")
                await asyncio.to_thread(make_file, tree / STATE_DIR, READY, "")
            except OSError as error:
                raise GitError(f"cannot create a worktree: {error.strerror or error}") from error
            return tree

    async def tidy(self, conversation: str) -> str:
        """Remove the conversation's worktree and branch if nothing was changed or committed in it; returns
        the branch if they stay, "" if there is none. Nothing may run in it.

        Raises GitError and SandboxUnavailableError.
        """
        async with self.alone:
            tree = existing(self.repo, conversation)
            known = begun(self.repo, conversation)
            if tree is None or known is None:
                return ""
            if _holds_files(tree) or not (await self.git(tree).run(UNUSED, *astuple(known))).output:
                return known.branch
            await self._remove(conversation, known)
            return ""

    async def target(self) -> Target:
        """The repository's own checkout. Raises GitError and SandboxUnavailableError."""
        said = (await self.git(self.repo).run(TARGET)).output.decode(errors="replace")
        branch, _, commit = said.strip("\n").partition("\n")
        if not branch or not COMMIT_ID.fullmatch(commit):
            raise GitError(NO_TARGET)
        return Target(branch, commit)

    async def state(self, conversation: str, target: Target) -> WorktreeState:
        """The state of the conversation's worktree. Raises GitError, also if there is none."""
        if (tree := existing(self.repo, conversation)) is None:
            raise GitError(GONE)
        known = begun(self.repo, conversation)
        asked = await self.git(tree).run(STATE, target.commit, known.branch if known else "")
        return _parse_state(tree, asked.output, holds_files=_holds_files(tree))

    async def fingerprint(self, state: WorktreeState) -> str:
        """A fingerprint of a worktree's content, as far as snapshots have it. Raises GitError."""
        kept = await Tree(self.git(state.path)).snapshot(f"worktree/{state.path.name}")
        return hashlib.sha256(f"{state.head} {kept.tree if kept else ''}".encode()).hexdigest()[:16]

    async def discard(self, conversation: str, is_busy: Check, now: datetime, expected: str = "") -> str:
        """Remove the conversation's worktree and branch, and keep a copy; returns its ref. ``expected`` is
        the fingerprint that somebody agreed to discard; without it, only what is saved elsewhere may go.

        Raises GitError, and removes nothing, if there is none, something runs in it, or it has changed.
        """
        async with self.alone:
            state = await self.state(conversation, await self.target())
            if await is_busy():
                raise GitError(RUNNING)
            if await self.fingerprint(state) != expected if expected else not state.is_saved:
                raise GitError(CHANGED)
            git = self.git(state.path)
            kept = await Tree(git).snapshot(f"worktree/{state.path.name}")
            if kept is None:
                raise GitError(GONE)
            known = begun(self.repo, conversation)
            ref = f"{DISCARDED}/{state.path.name}.{now:%Y%m%d-%H%M%S}"
            branch = known.branch if known else state.branch
            tip = (await git.run(KEEP, ref, kept.commit, branch)).output.decode().strip()
            await self._remove(conversation, BranchRecord(branch, tip) if tip else None)
            return ref

    async def expire(self, now: datetime) -> None:
        """Delete old copies of discarded worktrees. Raises GitError and SandboxUnavailableError."""
        first = now - timedelta(days=KEPT_DAYS)
        await self.git(self.repo).run(EXPIRE, DISCARDED, f"{first:%Y%m%d}")

    async def _remove(self, conversation: str, branch: BranchRecord | None) -> None:
        """Remove it, with its branch if that is still at its recorded commit."""
        if self._release is not None:
            await self._release(conversation)
        try:
            await asyncio.to_thread(_take_away, self.repo, name_of(conversation))
            if branch is not None:
                await self.git(self.repo).run(FORGET, *astuple(branch))
            await asyncio.to_thread(remove, self.repo / STATE_DIR / WORKTREES, record_of(conversation))
        except OSError as error:
            raise GitError(f"cannot remove a worktree: {error.strerror or error}") from error


def _parse_state(path: Path, output: bytes, *, holds_files: bool) -> WorktreeState:
    """Parses the output of STATE. Raises GitError."""
    head, branch, unmerged, unfinished, modules, *entries = (
        part.decode(errors="replace") for part in output.split(b"\0")
    )
    if not unmerged.isdecimal():
        raise GitError(UNEXPECTED)
    return WorktreeState(
        path=path,
        head=head,
        branch=branch,
        unmerged=int(unmerged),
        changed=tuple(entry[3:] for entry in entries if entry),
        unfinished=bool(unfinished),
        holds_more=holds_files or bool(modules),
    )


async def size_kib(git: Git) -> int | None:
    """The size of the working tree; None if counting takes too long."""
    with contextlib.suppress(GitError):
        said = (await git.run(SIZE, limit_s=SIZE_S)).output.decode(errors="replace").strip()
        return int(said) if said.isdecimal() else None
    return None


def names_in(repo: Path) -> frozenset[str]:
    """The names (see ``name_of``) of all worktrees; starts nothing."""
    try:
        return frozenset(entry.name for entry in os.scandir(repo / STATE_DIR / WORKTREES) if entry.is_dir())
    except OSError:
        return frozenset()


def record_of(conversation: str) -> str:
    """The file with the name of the conversation's branch: beside the worktree, where no agent writes."""
    return f"{name_of(conversation)}.branch"


def begun(repo: Path, conversation: str) -> BranchRecord | None:
    """The record; None if there is none."""
    try:
        words = (repo / STATE_DIR / WORKTREES / record_of(conversation)).read_text().split()
    except OSError:
        return None
    return BranchRecord(*words) if len(words) == 2 else None


def tree_of(repo: Path, conversation: str) -> Path:
    """The path of the conversation's worktree, existing or not."""
    return repo / STATE_DIR / WORKTREES / name_of(conversation)


def existing(repo: Path, conversation: str) -> Path | None:
    """The conversation's worktree, None if it has no complete one."""
    tree = tree_of(repo, conversation)
    try:
        return tree if tree.is_dir() and status_beneath(tree, f"{STATE_DIR}/{READY}") else None
    except OSError:
        return None


def _lay_out(repo: Path, name: str, commit: str) -> Path:
    """An empty worktree whose HEAD is ``commit``, replacing the remains of an earlier one."""
    checkout = inspect_checkout(repo)
    (entries,) = checkout.closed
    state = repo / STATE_DIR
    check_state_dir(state)
    parent, entry, tree = state / WORKTREES, f"codebutler-{name}", state / WORKTREES / name
    _make(state, WORKTREES, checkout.owner)
    for directory, leaf in ((entries, entry), (parent, name)):
        _remove_remains(directory, leaf)
        _make(directory, leaf, checkout.owner)
    for root, file, text in (
        (entries / entry, "HEAD", f"{commit}\n"),
        (entries / entry, "commondir", "../..\n"),
        # Programs do not see each other's worktrees: without it one's `git worktree prune` would delete the
        # others.
        (entries / entry, "locked", "of a conversation of CodeButler\n"),
        (entries / entry, "gitdir", f"{tree}/.git\n"),
        (tree, ".git", f"gitdir: {entries / entry}\n"),
    ):
        make_file(root, file, text)
    prepare_state_dir(tree)
    return tree


def _remove_remains(directory: Path, name: str) -> None:
    """The git of a worker that was killed ends a moment after it, and may still write there."""
    for left in reversed(range(REMOVALS)):
        try:
            remove(directory, name)
            break
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not left:
                raise
        time.sleep(REMOVE_AGAIN_S)


def _holds_files(tree: Path) -> bool:
    """Whether agents were given files there, or made some that git does not see. True if unknown."""
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
    """The first meaningful words of the task: lower-case ASCII letters and digits, joined by ``-``."""
    words = re.findall(r"[a-z0-9]+", strip_accents(task[:500]).lower().replace("'", ""))
    shown = ""
    for word in [word for word in words if not _FILLERS.fullmatch(word)] or words:
        longer = f"{shown}-{word}" if shown else word[:SLUG_CHARS]
        if len(longer) > SLUG_CHARS:
            break
        shown = longer
    return shown or "task"

"""The state of a worktree: what is not committed, and what the repository's own branch does not have yet."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

from codebutler_worker.tree.tree import Git, GitError

SIZE_S = 20.0
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
NO_TARGET = "the repository itself has a detached HEAD: switch to a branch there (`git switch NAME`)"
TARGET = "git symbolic-ref -q --short HEAD || echo; git rev-parse -q --verify 'HEAD^{commit}' || :"
STATE = """
head=$(git rev-parse -q --verify 'HEAD^{commit}') || exit 1
branch=$(git symbolic-ref -q --short HEAD) || branch=
own=$(git rev-parse --absolute-git-dir) || exit 1
unmerged=0
for tip in HEAD "refs/heads/$2"; do
  git rev-parse -q --verify "$tip^{commit}" >/dev/null || continue
  ahead=$(git rev-list --count "$1..$tip") || exit 1
  [ "$ahead" -gt "$unmerged" ] || continue
  # What was squashed or rebased is there as other commits: does merging it still change anything?
  tree=$(git merge-tree --write-tree "$1" "$tip" 2>/dev/null) && [ "$tree" = "$(git rev-parse "$1^{tree}")" ] ||
    unmerged=$ahead
done
unfinished=
for name in rebase-merge rebase-apply MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD; do
  [ ! -e "$own/$name" ] || unfinished=$name
done
[ ! -e "$own/modules" ] || modules=yes
printf '%s\\0' "$head" "$branch" "$unmerged" "$unfinished" "${modules-}"
git status --porcelain -z --no-renames -unormal --ignore-submodules=none -- . ':(exclude,top).codebutler'
"""
"""Arguments: the commit to compare with, and the branch that the conversation was given. Prints HEAD, its
branch, the number of unmerged commits, an unfinished merge or rebase and whether there are submodules; then
the changes."""
SIZE = "du -sk . 2>/dev/null | cut -f 1"


@dataclass(frozen=True, slots=True)
class Target:
    """The repository's own checkout, into which threads are merged."""

    branch: str
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeState:
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


async def find_target(git: Git) -> Target:
    """The checkout in which ``git`` works. Raises GitError."""
    branch, _, commit = (await git.run(TARGET)).output.decode(errors="replace").strip("\n").partition("\n")
    if not branch or not _COMMIT.fullmatch(commit):
        raise GitError(NO_TARGET)
    return Target(branch, commit)


def parse_state(path: Path, output: bytes, *, holds_files: bool) -> WorktreeState:
    """Parses the output of STATE. Raises GitError."""
    head, branch, unmerged, unfinished, modules, *entries = (
        part.decode(errors="replace") for part in output.split(b"\0")
    )
    if not unmerged.isdecimal():
        raise GitError("git gave an unexpected answer")
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

"""Merges a conversation's branch into the repository's checked-out branch, and finds paths that both change.

Git runs inside the sandbox, without hooks. A merge is complete or has not happened: the branch is first
rebased onto the other in its own worktree, then the repository is only fast-forwarded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from msgspec import Struct

from codebutler.domain.errors import CodeButlerError
from codebutler_worker.tree.scripts import FUNCTIONS
from codebutler_worker.tree.tree import Git, GitError
from codebutler_worker.tree.worktrees import RUNNING, Check, Target, Worktrees, WorktreeState

LIMIT_S = 300.0
NAMED = 3
DETACHED = "this thread's worktree has a detached HEAD: ask the agent to put its work on one"
UNFINISHED = "a merge or rebase is unfinished in this thread's worktree: ask the agent to finish it"
MOVED = "the repository has changed meanwhile: try again"
SETTLE = """
own=$(git rev-parse --absolute-git-dir) || exit 1
[ -e "$own/codebutler-merge" ] || exit 0
[ ! -d "$own/rebase-merge" ] || git rebase --abort || exit 1
rm -f "$own/codebutler-merge"
"""
"""Aborts a rebase of ours that was cut off; an agent's own has no such mark."""
IDENTITY = """
git var GIT_COMMITTER_IDENT >/dev/null 2>&1 ||
  export GIT_COMMITTER_NAME=CodeButler GIT_COMMITTER_EMAIL=codebutler@localhost
git var GIT_AUTHOR_IDENT >/dev/null 2>&1 ||
  export GIT_AUTHOR_NAME=CodeButler GIT_AUTHOR_EMAIL=codebutler@localhost
"""
COMMIT = f"""{IDENTITY}
git add -A -- . ':(exclude,top).codebutler' || exit 1
git -c commit.gpgSign=false commit -q --no-verify -m "$1"
"""
"""Argument: the message."""
REBASE = f"""{IDENTITY}
own=$(git rev-parse --absolute-git-dir) || exit 1
unsigned=0
git merge-base --is-ancestor "$1" HEAD || {{
  unsigned=$(git rev-list "$1..HEAD" | while read -r each; do
    git cat-file commit "$each" | sed '/^$/q' | grep -q '^gpgsig' && echo
  done | wc -l)
  : > "$own/codebutler-merge"
  if ! git -c rebase.autoStash=false -c rebase.updateRefs=false -c rebase.autoSquash=false -c rebase.forkPoint=false \\
    -c rebase.backend=merge -c commit.gpgSign=false -c rerere.enabled=false rebase -q "$1" \\
    >/dev/null 2>"$own/codebutler-said"; then
    git diff -z --name-only --diff-filter=U > "$own/codebutler-conflicts"
    [ -d "$own/rebase-merge" ] || {{ cat "$own/codebutler-said" >&2; rm -f "$own/codebutler-merge"; exit 1; }}
    git rebase --abort || exit 1
    rm -f "$own/codebutler-merge"
    printf 'conflict\\0'
    cat "$own/codebutler-conflicts"
    exit 0
  fi
  rm -f "$own/codebutler-merge"
}}
printf '%s\\0%d\\0' "$(git rev-parse HEAD)" "$unsigned"
"""
"""Argument: the commit to rebase onto. Prints the branch's new commit and how many commits had a signature before; or
``conflict`` and the paths, with everything as before."""
TOUCHED = """
base=$(git merge-base "$1" "$2") || { echo 'the branches have no common commit' >&2; exit 1; }
git diff -z --name-only --no-renames "$base" "$2" |
  xargs -0 sh -c '[ $# = 0 ] ||
    git --literal-pathspecs status --porcelain -z --no-renames --ignored -uall -- "$@"' status
"""
"""Arguments: the checked-out commit, and the branch's. Prints the branch's paths that differ here."""
FORWARD = """
[ "$(git rev-parse HEAD)" = "$1" ] && [ "$(git symbolic-ref -q --short HEAD)" = "$3" ] || { echo moved; exit 0; }
git -c merge.autoStash=false -c merge.verifySignatures=false -c submodule.recurse=false \\
  merge -q --ff-only --no-overwrite-ignore "$2" >/dev/null || exit 1
git --no-pager diff --no-color --no-ext-diff --no-textconv --shortstat "$1" "$2"
"""
"""Arguments: the checked-out commit, the one to fast-forward to, and its branch. Prints the changes, or
``moved``."""
SHARED = f"""{FUNCTIONS}
for commit in "$@"; do
  base=$(git merge-base HEAD "$commit" 2>/dev/null) || base=
  [ -z "$base" ] || diffs -z --name-only --no-renames "$base" "$commit"
  printf '\\0'
done
"""
"""Arguments: commits. Prints, for each, the paths that it changed since its merge base with HEAD, and an
empty one."""


class Merged(Struct, frozen=True):
    """The result. ``conflicts``: it was not merged because of these paths. ``stat``: git's summary of what is
    new in ``into``, "" if nothing was. ``unsigned``: how many commits lost their signature when they were rebased."""

    branch: str
    into: str
    stat: str = ""
    conflicts: tuple[str, ...] = ()
    unsigned: int = 0


async def merge(trees: Worktrees, conversation: str, message: str, is_busy: Check) -> Merged:
    """Merge the conversation's branch; first commits uncommitted changes in its worktree with ``message``.

    Raises GitError with one line that says what to do, in which case nothing is merged; and
    SandboxUnavailableError.
    """
    async with trees.alone:
        target = await trees.target()
        state = await trees.state(conversation, target)
        git = trees.git(state.path).as_owner()
        if await is_busy():
            raise GitError(RUNNING)
        await git.run(SETTLE)
        state = await _ready(trees, conversation, target, git, message)
        if not state.unmerged:
            return Merged(state.branch, target.branch)
        main = trees.git(trees.repo)
        await _refuse_unsaved(main, target, state)
        try:
            output = (await git.run(REBASE, target.commit, limit_s=LIMIT_S)).output
        except GitError:
            with contextlib.suppress(CodeButlerError):
                await git.run(SETTLE)
            raise
        tip, *paths = (part.decode(errors="replace") for part in output.split(b"\0"))
        if tip == "conflict":
            return Merged(state.branch, target.branch, conflicts=tuple(path for path in paths if path))
        forward = await main.run(FORWARD, target.commit, tip, target.branch, limit_s=LIMIT_S)
        stat = forward.output.decode(errors="replace").strip()
        if stat == "moved":
            raise GitError(MOVED)
        unsigned = int(paths[0]) if paths[0].isdecimal() else 0
        return Merged(state.branch, target.branch, stat=stat or "no file changed", unsigned=unsigned)


async def _ready(
    trees: Worktrees, conversation: str, target: Target, git: Git, message: str
) -> WorktreeState:
    """The worktree with all its work committed on a branch."""
    state = await trees.state(conversation, target)
    if state.unfinished:
        raise GitError(UNFINISHED)
    if not state.branch:
        raise GitError(DETACHED)
    if not state.changed:
        return state
    if not message:
        raise GitError(
            f"not committed yet: {named(state.changed)}. Say `!merge MESSAGE` to commit with that message and merge"
        )
    await git.run(COMMIT, message)
    return await trees.state(conversation, target)


async def _refuse_unsaved(main: Git, target: Target, state: WorktreeState) -> None:
    """Uncommitted changes in the repository itself stay as they are."""
    said = (await main.run(TOUCHED, target.commit, state.head)).output.decode(errors="replace")
    if dirty := tuple(entry[3:] for entry in said.split("\0") if entry):
        raise GitError(
            f"the repository itself has uncommitted changes in {named(dirty)}: commit or stash them there, then try "
            "again"
        )


def named(paths: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(f"`{path}`" for path in paths[:NAMED]) + more


async def shared_paths(main: Git, commit: str, others: Sequence[str]) -> list[tuple[str, ...]]:
    """For each of ``others`` (snapshots) the paths that it and ``commit`` both change. Raises GitError."""
    said = (await main.run(SHARED, commit, *others)).output.decode(errors="replace").split("\0")
    groups: list[set[str]] = [set()]
    for path in said[:-1]:
        if path:
            groups[-1].add(path)
        else:
            groups.append(set())
    own, *theirs = groups[: 1 + len(others)]
    return [tuple(sorted(own & paths)) for paths in theirs]

"""Adds trailers to the commits that an agent made during a run, after it.

Git offers nothing that adds them at commit time but hooks, and a directory of hooks of ours would hide the repository's
own. So the commits are made again, inside the sandbox: the same trees, authors and dates, with the trailers in their
messages. This is done only to commits that nobody else has yet: a commit that was pushed must not change.

The state of a worktree: what is not committed, and what the repository's own branch does not have yet.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from codebutler_worker.tree.scripts import FUNCTIONS
from codebutler_worker.tree.tree import Git, GitError

MOST_COMMITS = 50

AMEND = f"""{FUNCTIONS}
before=$1 trailers=$2
shift 2
for busy in MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD BISECT_LOG rebase-merge rebase-apply; do
  [ ! -e "$(git rev-parse --git-path "$busy")" ] || exit 0
done
find_own
branch=$(git symbolic-ref -q HEAD) || exit 0
find_head
base=$(git rev-parse -q --verify "$before^") || base=
[ -n "$head" ] && [ "$head" != "$base" ] || exit 0
[ -z "$base" ] || git merge-base --is-ancestor "$base" "$head" || exit 0
us=$(git var GIT_COMMITTER_IDENT 2>/dev/null | sed 's/ [0-9]* [-+0-9]*$//')
[ -n "$us" ] || exit 0

field() {{ git --no-pager -c log.showSignature=false log -1 --no-color --date=raw --format="$2" "$1"; }}

# What another branch, tag, remote, stash or checkout has, or what was pushed, stays as it is.
detached=$(git worktree list --porcelain | awk '/^HEAD /{{ head = $2 }} /^detached/{{ print head }}')
set -- $(for each in $base $detached "$@"; do printf '^%s ' "$each"; done)
commits=$(git rev-list --ignore-missing --reverse --topo-order --max-count={MOST_COMMITS + 1} "$head" "$@" \\
  --not --exclude="$branch" --exclude='refs/codebutler/*' --glob='refs/*') || exit 1
[ -n "$commits" ] && [ "$(printf '%s\\n' "$commits" | wc -l)" -le {MOST_COMMITS} ] || exit 0
for commit in $commits; do
  [ "$(field "$commit" '%cn <%ce>')" = "$us" ] || exit 0
  # A signature, or anything else that would be lost.
  ! git cat-file commit "$commit" | sed '/^$/q' | grep -qEv '^((tree|parent|author|committer) .*)?$' || exit 0
done

set --
while IFS= read -r trailer; do
  [ -z "$trailer" ] || set -- "$@" --trailer "$trailer"
done <<END
$trailers
END
made=
number=0
for commit in $commits; do
  parents= same=yes
  for parent in $(field "$commit" %P); do
    now=$(printf '%s' "$made" | sed -n "s/^$parent //p")
    [ -z "$now" ] || [ "$now" = "$parent" ] || same=
    parents="$parents -p ${{now:-$parent}}"
  done
  field "$commit" %B > "$own/message"
  git interpret-trailers --no-divider --if-exists addIfDifferent "$@" < "$own/message" > "$own/amended" || exit 1
  if [ -n "$same" ] && cmp -s "$own/message" "$own/amended"; then
    new=$commit
  else
    new=$(GIT_AUTHOR_NAME=$(field "$commit" %an) GIT_AUTHOR_EMAIL=$(field "$commit" %ae) \\
      GIT_AUTHOR_DATE=@$(field "$commit" %ad) GIT_COMMITTER_DATE=@$(field "$commit" %cd) \\
      git commit-tree $parents -F "$own/amended" "$commit^{{tree}}") || exit 1
    number=$((number + 1))
  fi
  made="$made$commit $new
"
done
rm -f "$own/message" "$own/amended"
[ $number = 0 ] || git update-ref -m "commit: trailers added by CodeButler" "$branch" "$new" "$head" || exit 1
echo $number
"""
"""Arguments: the snapshot from the run's beginning, the trailers as lines, and commits that were pushed. Prints how
many commits were made again. The branch moves only if it is still where it was."""


async def add_trailers(git: Git, before: str, trailers: Sequence[str], pushed: Iterable[str]) -> int:
    """Add them to the commits since the snapshot ``before``; returns to how many. Raises GitError and
    SandboxUnavailableError; then nothing has changed."""
    said = await git.as_owner().run(AMEND, before, "\n".join(trailers), *pushed)
    number = said.output.strip()
    return int(number) if number.isdigit() else 0


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

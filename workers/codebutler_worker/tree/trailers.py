"""Adds trailers to the commits that an agent made during a run, after it.

Git offers nothing that adds them at commit time but hooks, and a directory of hooks of ours would hide the repository's
own. So the commits are made again, inside the sandbox: the same trees, authors and dates, with the trailers in their
messages. This is done only to commits that nobody else has yet: a commit that was pushed must not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from codebutler_worker.tree.scripts import FUNCTIONS
from codebutler_worker.tree.tree import Git

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

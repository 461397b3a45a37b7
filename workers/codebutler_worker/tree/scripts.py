"""The shell scripts of git commands behind ``Tree`` and ``Worktrees``. Each runs in a working tree, inside the agents'
sandbox.
"""

from __future__ import annotations

NO_REPOSITORY = 9
"""The exit code if there is no git repository."""

FUNCTIONS = f"""
set -u
# Agents see what git tracks of ours only as git has it: no snapshot says what became of it.
diffs_of() {{ git --no-pager diff --no-color --no-ext-diff --no-textconv "$@" ':(exclude,top).codebutler'; }}
diffs() {{ diffs_of "$@" -- .; }}

find_own() {{
  if [ -d .git ]; then dir=$PWD/.git; else dir=$(git rev-parse --absolute-git-dir) || exit {NO_REPOSITORY}; fi
  own=$dir/codebutler
  [ -d "$own" ] || mkdir "$own" || exit 1
  rm -f "$own/index.lock"
}}

# NUL-terminated names: as lines, each with its beginning replaced, and back.
each() {{ tr '\\0\\n' '\\n\\001' | sed "$1" | tr '\\n\\001' '\\0\\n'; }}

too_large() {{
  each 's|^|./|' | xargs -0 sh -c '[ $# = 0 ] || find "$@" -prune -type f -size +'"$1"' -print0' find 2>/dev/null |
    each 's|^\\./|:(exclude,top,literal)|'
}}

# Which paths differ from our index, into "$own/changed".
find_changed() {{
  export GIT_INDEX_FILE="$own/index"
  [ -f "$own/index" ] || [ ! -f "$dir/index" ] || cp "$dir/index" "$own/index"
  git ls-files -z -m -o --exclude-standard -- . ':(exclude,top).codebutler' > "$own/changed" 2>/dev/null || {{
    rm -f "$own/index"
    git ls-files -z -m -o --exclude-standard -- . ':(exclude,top).codebutler' > "$own/changed" || exit {NO_REPOSITORY}
  }}
}}

# The whole working tree, but for what is ignored or too large ($1, in blocks of 512 bytes), as a tree object.
write_tree() {{
  if [ -s "$own/changed" ]; then
    rm -f "$own/last"
    {{ printf '.\\0:(exclude,top).codebutler\\0'; too_large "$1" < "$own/changed"; }} |
      git add -A --ignore-errors --pathspec-from-file=- --pathspec-file-nul >/dev/null 2>&1
  fi
  tree=$(git write-tree) || exit 1
  unset GIT_INDEX_FILE
}}

find_head() {{ head=$(git rev-parse -q --verify 'HEAD^{{commit}}') || head=; }}
empty_tree() {{ git hash-object -t tree /dev/null; }}
"""

SNAPSHOT = f"""{FUNCTIONS}
find_own
find_changed
find_head
commit= tree= parent=
[ ! -s "$own/changed" ] && [ -f "$own/last" ] && read -r commit tree parent < "$own/last"
if [ -z "$commit" ] || [ "$parent" != "$head" ]; then
  write_tree "$1"
  commit=$(git commit-tree ${{head:+-p "$head"}} -m "codebutler $2" "$tree" </dev/null) || exit 1
  echo "$commit $tree $head" > "$own/last"
fi
unset GIT_INDEX_FILE
git update-ref "refs/codebutler/$2" "$commit" || exit 1
if [ "$3" != 0 ]; then
  git for-each-ref --sort=-creatordate --format='delete %(refname)' refs/codebutler |
    tail -n "+$3" | git update-ref --stdin
fi
printf '%s %s' "$commit" "$tree"
"""
"""Arguments: the size limit in blocks, the ref's name below refs/codebutler, the first surplus ref (0 = do
not count). Prints the commit, whose parent is HEAD at that time, and its tree; if nothing has changed, those
of the last one."""

DIFF = f"""{FUNCTIONS}
blocks=$1 limit=$2 from=$3 to=$4
shift 4
if [ "$to" = now ]; then
  find_own
  find_changed
  find_head
  write_tree "$blocks"
  from=${{head:-$(empty_tree)}} to=$tree
  printf '%s %s\\0\\0' "$from" "$to"
else
  printf '%s %s\\0' "$from" "$to"
  git --no-pager log --format='%h %s' --max-count=20 "$from^..$to^" 2>/dev/null
  printf '\\0'
fi
diffs --numstat -z "$from" "$to" || exit 1
printf '\\0'
for path in "$@"; do
  shift
  set -- "$@" ":(top,literal)$path"
done
{{ [ $# != 0 ] || set -- .; diffs_of "$from" "$to" -- "$@"; }} | head -c "$limit"
"""
"""Arguments: the size limit in blocks, the limit of the diff in bytes, two commits, or - and ``now`` for the
working tree against HEAD, and the files to diff (none = all). Prints both ends, the commits in between, the
lines added and removed in each file, and the diff, with NUL after each but the last."""

NOTHING_LEFT = "nothing"
UNSIGNED = "unsigned"

COMMIT = f"""{FUNCTIONS}
fail() {{ echo "$1" >&2; exit 1; }}
find_own
for busy in MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD rebase-merge rebase-apply; do
  [ ! -e "$(git rev-parse --git-path "$busy")" ] || fail "a merge or rebase is under way: finish it first"
done
find_head
branch=$(git symbolic-ref -q --short HEAD) || branch=
made=$(git rev-parse -q --verify "refs/codebutler/$3") && {{ echo "again $made $branch"; exit 0; }}
names="$own/commit-names"
export GIT_INDEX_FILE="$own/commit-index"
rm -f "$GIT_INDEX_FILE" "$GIT_INDEX_FILE.lock" "$own/commit-patch"
if [ -n "$head" ]; then git read-tree "$head" || exit 1; else git read-tree --empty || exit 1; fi
# What HEAD has already as the run left it was committed meanwhile, by the agent perhaps.
diffs -z --name-only --no-renames "${{head:-$(empty_tree)}}" "$2" | each 's|^|:(top,literal)|' > "$names"
[ ! -s "$names" ] || xargs -0 git --no-pager diff --no-color --no-ext-diff --no-textconv --binary --full-index \\
  --no-renames "$1" "$2" -- < "$names" > "$own/commit-patch" || exit 1
[ ! -s "$own/commit-patch" ] ||
  git apply --cached --3way --whitespace=nowarn "$own/commit-patch" >/dev/null 2>&1 ||
  fail "the files hold other uncommitted changes on the same lines, or were committed differently"
tree=$(git write-tree) || exit 1
rm -f "$GIT_INDEX_FILE" "$own/commit-patch"
unset GIT_INDEX_FILE
if [ -n "$head" ] && [ "$tree" = "$(git rev-parse "$head^{{tree}}")" ]; then echo {NOTHING_LEFT}; exit 0; fi
if [ "$5" = sign ]; then
  commit=$(printf '%s' "$4" | git commit-tree ${{head:+-p "$head"}} -F - "$tree") || exit 1
  encoded() {{ git cat-file "$@" | base64 | tr -d '\n'; echo; }}
  echo "{UNSIGNED} $commit"
  encoded commit "$commit"
  encoded tree "$tree"
  [ -z "$head" ] || encoded commit "$head"
  exit 0
elif [ -n "$5" ]; then
  commit=$(printf '%s' "$5" | base64 -d | git hash-object -t commit -w --stdin) || exit 1
  [ "$(git rev-parse "$commit^{{tree}}") $(git rev-parse -q --verify "$commit^")" = "$tree $head" ] ||
    fail "something was committed meanwhile: commit again"
else
  commit=$(printf '%s' "$4" | git commit-tree ${{head:+-p "$head"}} -F - "$tree") || exit 1
fi
zero=$(printf '%s' "$commit" | tr '0-9a-f' 0)
printf 'update HEAD %s %s\\ncreate refs/codebutler/%s %s\\n' "$commit" "${{head:-$zero}}" "$3" "$commit" |
  git update-ref -m "commit: $(printf '%s' "$4" | head -n 1)" --stdin || exit 1
diffs -z --name-only --no-renames "$1" "$2" | each 's|^|:(top,literal)|' > "$names"
git reset -q --pathspec-from-file="$names" --pathspec-file-nul >/dev/null 2>&1
rm -f "$names"
echo "new $commit $branch"
"""
"""Arguments: the two commits around the change, the name of the ref that remembers the commit, its message, and
``sign``, or the signed commit in base64, or nothing. Prints a word, the commit and the branch; for ``sign``
the unsigned commit, and moves nothing. The change is committed on top of HEAD with a separate index, so
that neither staged nor other changes get into it."""

PUT_BACK = f"""{FUNCTIONS}
find_own
export own before="$3" mode="$2"
after=$4
if [ "$after" = now ]; then
  find_changed
  write_tree "$1"
  after=$tree
fi
export after
[ "$4" = now ] && top=HEAD || top=$4^
commits=$(git rev-list --count "$before^..$top" 2>/dev/null) || commits=0
printf '%s\\0' "$commits"
diffs --binary --full-index --no-renames "$before" "$after" > "$own/patch" || exit 1
[ -s "$own/patch" ] || exit 0
if git apply -R --check --whitespace=nowarn "$own/patch" 2>/dev/null; then
  [ "$mode" = check ] || git apply -R --whitespace=nowarn "$own/patch" || exit 1
  diffs -z --name-only --no-renames --diff-filter=A "$before" "$after" | each 's|^|-|'
  diffs -z --name-only --no-renames --diff-filter=a "$before" "$after" | each 's|^|+|'
else
  diffs -z --name-only --no-renames "$before" "$after" | xargs -0 -n 1 sh -c '
    git --no-pager diff --no-ext-diff --no-textconv --binary --full-index --no-renames \\
      "$before" "$after" -- ":(top,literal)$1" > "$own/patch"
    [ "$mode" = check ] && check=--check || check=
    grep -qa "^new file mode " "$own/patch" && sign=- || sign=+
    if git apply -R $check --whitespace=nowarn "$own/patch" 2>/dev/null; then
      printf "%s%s\\0" "$sign" "$1"
    else
      printf "=%s\\0" "$1"
    fi' put-back
fi
rm -f "$own/patch"
"""
"""Arguments: the size limit in blocks, ``check`` or ``apply``, and two commits (``now`` = the working tree)
around the change to undo. Prints the number of commits in between, and each path with + for restored, - for
removed and = for changed since (or, to check, what would be)."""

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

FILL = """
has() { git show-ref -q --verify "refs/heads/$1"; }
had=$1; shift
git reset -q --hard || exit 1
if has "$had"; then git checkout -q "$had" && echo "$had"; exit; fi
for name in "$@"; do has "$name" || { git checkout -q -b "$name" && echo "$name"; exit; }; done
exit 1
"""
"""Arguments: the conversation's earlier branch, if any, and names for a new one. Prints the branch."""

UNUSED = """
[ "$(git rev-parse -q --verify HEAD)" = "$2" ] && [ "$(git symbolic-ref -q HEAD)" = "refs/heads/$1" ] || exit 0
git reflog show --format=%H HEAD -- | grep -qv "^$2" && exit 0
[ ! -e "$(git rev-parse --git-dir)/modules" ] || exit 0
changed=$(git status --porcelain --ignored -uall --ignore-submodules=none -- . ':(exclude,top).codebutler') || exit 1
[ -z "$changed" ] && echo unused
exit 0
"""
"""Arguments: the branch, and the commit it started at. Prints a word if the worktree has nothing but that
commit: no other commit was ever checked out in it, and no file is changed, new or ignored."""

KEEP = """
git update-ref "$1" "$2" || exit 1
tip=$(git rev-parse -q --verify "refs/heads/$3^{commit}") || exit 0
git merge-base --is-ancestor "$tip" "$2" || git update-ref "$1-branch" "$tip" || exit 1
echo "$tip"
"""
"""Arguments: the ref, the commit to keep there, and the branch, which is kept beside it if that commit does
not contain it. Prints the branch's commit."""

EXPIRE = """
git for-each-ref --format='%(refname)' "$1" | while read -r ref; do
  day=${ref##*.}
  [ "${day%%-*}" -ge "$2" ] || git update-ref -d "$ref"
done
"""
"""Arguments: the prefix of such refs, and the first day (YYYYMMDD) to keep."""

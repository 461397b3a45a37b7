"""What git is asked to do, as POSIX shell: one start of the sandbox for a whole question.

Everything runs where the agents run. An index and refs of our own (``refs/codebutler``) keep away from what people
work with: their index, their branches and their stash are never written.
"""

from __future__ import annotations

ENV = {
    "PATH": "/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}

OURS = {
    "GIT_AUTHOR_NAME": "CodeButler",
    "GIT_AUTHOR_EMAIL": "codebutler@localhost",
    "GIT_COMMITTER_NAME": "CodeButler",
    "GIT_COMMITTER_EMAIL": "codebutler@localhost",
}
"""Who makes the commits that keep snapshots: no person's."""

CONFIG = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.quotePath", "false"),
    ("core.safecrlf", "false"),
    ("advice.addEmbeddedRepo", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
)
"""A repository's own configuration can name programs for git to run, and slow down or alter what is said."""

NO_REPOSITORY = 9
"""The exit code where there is no git repository."""

FUNCTIONS = f"""
set -u
# Agents see what git tracks of ours only as git has it: no snapshot says what became of it.
diffs() {{ git --no-pager diff --no-color --no-ext-diff --no-textconv "$@" -- . ':(exclude,top).codebutler'; }}

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
"""Arguments: the size limit in blocks, the ref's name below refs/codebutler, the first ref too many (0 = count none).
Prints the commit, whose parent is what HEAD was, and its tree; where nothing has changed, those of the last one."""

DIFF = f"""{FUNCTIONS}
if [ "$4" = now ]; then
  find_own
  find_changed
  find_head
  write_tree "$1"
  from=${{head:-$(empty_tree)}} to=$tree
else
  from=$3 to=$4
fi
diffs --stat=90 "$from" "$to" || exit 1
printf '\\0'
diffs "$from" "$to" | head -c "$2"
"""
"""Arguments: the size limit in blocks, how many bytes of the difference, and two commits, or - and ``now`` for the
working tree against HEAD. Prints a summary, NUL, and the difference."""

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
"""Arguments: the size limit in blocks, ``check`` or ``apply``, and two commits (``now`` = the working tree) between
which the change lies that is to be taken back. Prints the number of commits in between, and each path with + for
what can be (was) put back, - for what can be (was) removed and = for what has been changed since."""

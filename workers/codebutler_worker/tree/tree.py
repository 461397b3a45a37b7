"""Tree: what the working tree looks like, what changed in it, and how a change is put back.

Git does it, on a repository in which agents write: always inside the sandbox, never the host's. A repository's
configuration, attributes and filters can make git run programs; inside, they may do what an agent may do anyway.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from codebutler.domain.errors import AgentUnavailableError, CodeButlerError
from codebutler_worker.programs.process import EndedProgram, run_to_end
from codebutler_worker.sandbox.destinations import UnsafePathError, status_beneath
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy

LIMIT_BYTES = 8 * 2**20
LIMIT_S = 60.0
NOT_GIT = "this directory is not a git repository: run `git init` in it"
MAX_FILE_BYTES = 20 * 2**20
"""Larger files are not kept in snapshots."""
BLOCK_BYTES = 512  # POSIX: the unit of find's -size
KEPT_REFS = 200
PRUNE_EVERY = 20
"""Turns: looking for what is too old takes two more processes of git."""
SNAPSHOT_S = 10.0
NOW = "now"
BEFORE, AFTER = "before", "after"
_ID = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_BLOCKS = str(MAX_FILE_BYTES // BLOCK_BYTES)


class GitError(CodeButlerError):
    """Git could not answer; one line that says why."""


class GitSlowError(GitError):
    """Git did not answer in time."""


class Git:
    """Runs shell scripts of git commands in ``workdir``; ``home`` is where the sandbox's HOME is; ``filling``: see
    SandboxPolicy."""

    def __init__(self, sandbox: Sandbox, workdir: Path, home: Path, *, filling: bool = False) -> None:
        self._sandbox = sandbox
        self.workdir = workdir
        self._policy = SandboxPolicy(
            workdir=workdir, home=home, env={**environment(), **OURS}, network="none", filling=filling
        )

    def has_repository(self) -> bool:
        """Whether there is a git directory at all; starts nothing."""
        try:
            return status_beneath(self.workdir, ".git") is not None
        except UnsafePathError:
            return True  # something is there: the sandbox says what is wrong with it
        except OSError:
            return False

    async def run(
        self, script: str, *arguments: str, limit_bytes: int = LIMIT_BYTES, limit_s: float = LIMIT_S
    ) -> EndedProgram:
        """Run ``script``, and keep ``limit_bytes`` of what it prints.

        Raises GitError for any failure, and SandboxUnavailableError.
        """
        if not self.has_repository():
            raise GitError(NOT_GIT)
        launch = self._sandbox.wrap(("/bin/sh", "-c", script, "git", *arguments), self._policy)
        try:
            ended = await run_to_end(launch, limit_bytes=limit_bytes, limit_s=limit_s)
        except AgentUnavailableError as error:
            raise GitError(str(error)) from error
        if ended.code is None:
            raise GitSlowError(f"git took longer than {limit_s:g} s")
        if ended.code != 0:
            raise GitError(_why(ended.code, ended.limit_hit or ended.stderr))
        return ended


def _why(code: int, stderr: str) -> str:
    if code == NO_REPOSITORY:
        return NOT_GIT
    if code == 127:
        return "git is not installed on this machine: install it"
    lines = [line for line in stderr.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"git ended with exit code {code}"


def environment() -> dict[str, str]:
    """The environment of every git here: nothing of ours, and a configuration that runs nothing."""
    env = {**ENV, "GIT_CONFIG_COUNT": str(len(CONFIG))}
    for at, (key, value) in enumerate(CONFIG):
        env |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return env


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The commit that keeps it, and the tree, which is the same whenever the content is."""

    commit: str
    tree: str


@dataclass(frozen=True, slots=True)
class Difference:
    """``stat`` is git's summary, ``body`` the difference itself; ``cut``: it is longer than was asked for."""

    stat: str
    body: str
    cut: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """The names in ``stat``, as git shortens them."""
        return tuple(line.rpartition(" | ")[0].strip() for line in self.stat.splitlines() if " | " in line)


@dataclass(frozen=True, slots=True)
class PutBack:
    """The paths that were (or, asked only, would be) put back, those removed because the change made them, and
    those left alone because they were changed since. ``commits``: how many the change itself made; they stay."""

    restored: tuple[str, ...]
    left: tuple[str, ...]
    commits: int = 0
    removed: tuple[str, ...] = ()

    @property
    def undone(self) -> int:
        """How many files become as they were."""
        return len(self.restored) + len(self.removed)


class Tree:
    """One repository's working tree. One question at a time: they share an index of our own.

    Every method raises GitError with one line, and SandboxUnavailableError.
    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._lock = asyncio.Lock()
        self._too_large = False
        self._afters = 0

    async def snapshot(self, name: str) -> Snapshot | None:
        """Keep the tree as it is, under ``refs/codebutler/name``; returns it, None without git. One whose name
        ends with AFTER, for which nobody waits, lets the oldest go now and then.

        Untracked files are in it; ignored ones and files above MAX_FILE_BYTES are not. Once git has needed more
        than SNAPSHOT_S seconds it is asked no more: no turn shall wait for that again.
        """
        if self._too_large or not self._git.has_repository():
            return None
        async with self._lock:
            first = 0
            if name.endswith(AFTER):
                first = 0 if self._afters % PRUNE_EVERY else KEPT_REFS + 1
                self._afters += 1
            try:
                said = await self._git.run(SNAPSHOT, _BLOCKS, name, str(first), limit_s=SNAPSHOT_S)
            except GitSlowError as error:
                self._too_large = True
                raise GitError(f"{error} to keep the working tree, so no turn can be undone here") from error
        commit, _, tree = said.output.decode(errors="replace").partition(" ")
        return Snapshot(_checked(commit), _checked(tree))

    async def difference(
        self, before: str | None = None, after: str | None = None, *, limit_bytes: int = 2**20
    ) -> Difference:
        """What changed from one snapshot to another; without them, in the working tree since HEAD, with
        untracked files."""
        pair = (_checked(before), _checked(after)) if before and after else ("-", NOW)
        async with self._lock:
            # One byte more than asked for shows whether there is more.
            said = await self._git.run(DIFF, _BLOCKS, str(limit_bytes + 1), *pair)
        stat, _, body = said.output.partition(b"\0")
        cut = said.cut or len(body) > limit_bytes
        return Difference(_text(stat).strip("\n"), _text(body[:limit_bytes]), cut)

    async def put_back(self, before: str, after: str | None, mode: Literal["check", "apply"]) -> PutBack:
        """Take back what changed from ``before`` to ``after`` (None = until now), or only see what would be.

        What was changed since stays as it is, file by file; the index and the branch are not touched.
        """
        last = _checked(after) if after else NOW
        async with self._lock:
            said = await self._git.run(PUT_BACK, _BLOCKS, mode, _checked(before), last)
        commits, *paths = [_text(part) for part in said.output.split(b"\0")]
        return PutBack(
            restored=tuple(path[1:] for path in paths if path.startswith("+")),
            left=tuple(path[1:] for path in paths if path.startswith("=")),
            commits=int(commits) if commits.isdecimal() else 0,
            removed=tuple(path[1:] for path in paths if path.startswith("-")),
        )


def _checked(commit: str) -> str:
    if not _ID.fullmatch(commit):
        raise GitError("git gave no usable answer")
    return commit


def _text(output: bytes) -> str:
    return output.decode(errors="replace")


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

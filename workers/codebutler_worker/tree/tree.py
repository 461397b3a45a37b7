"""Tree: snapshots of the working tree, diffs, and undoing a change.

Git does the work, in a repository that agents can write to: always inside the sandbox, never on the host. A
repository's configuration, attributes and filters can make git run programs; inside, they may do what an
agent may do anyway.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from codebutler.domain.errors import AgentUnavailableError, CodeButlerError
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy
from codebutler_worker.sandbox.process import EndedProgram, Record, run_to_end
from codebutler_worker.tree.scripts import (
    COMMIT,
    DIFF,
    NO_REPOSITORY,
    NOTHING_LEFT,
    PUT_BACK,
    SNAPSHOT,
    UNSIGNED,
)

LIMIT_BYTES = 8 * 2**20
LIMIT_S = 60.0
NOT_GIT = "this directory is not a git repository: run `git init` in it"
MAX_FILE_BYTES = 20 * 2**20
"""Larger files are not kept in snapshots."""
BLOCK_BYTES = 512  # POSIX: the unit of find's -size
KEPT_REFS = 200
PRUNE_EVERY = 20
"""Old snapshots are looked for once in this many turns: it takes two more git processes."""
SNAPSHOT_S = 10.0
NOW = "now"
BEFORE, AFTER = "before", "after"
UNEXPECTED = "git gave an unexpected answer"
COMMIT_ID = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_SNAPSHOT = re.compile(rf"(?P<commit>{COMMIT_ID.pattern}) (?P<tree>{COMMIT_ID.pattern})")
_BLOCKS = str(MAX_FILE_BYTES // BLOCK_BYTES)
Sign = Callable[[bytes], Awaitable[bytes]]
"""From what COMMIT prints of an unsigned commit to the content of the signed one. Raises CodeButlerError."""

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
"""The committer of snapshots: no person."""

CONFIG = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.quotePath", "false"),
    ("core.safecrlf", "false"),
    ("advice.addEmbeddedRepo", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
)
"""A repository's own configuration can make git run programs, and slow down or alter its output."""


class GitError(CodeButlerError):
    """Git failed; one line that says why."""


class NoRepositoryError(GitError):
    """The directory is not a git repository; nothing was started."""


class GitSlowError(GitError):
    """Git did not finish in time."""


class Git:
    """Runs shell scripts of git commands in ``workdir``; ``home`` is where the sandbox's HOME is; ``filling``: see
    SandboxPolicy. What it commits is ours."""

    def __init__(self, sandbox: Sandbox, workdir: Path, home: Path, *, filling: bool = False) -> None:
        self._sandbox = sandbox
        self.workdir = workdir
        self._policy = SandboxPolicy(
            workdir=workdir, home=home, env=environment() | OURS, network="none", filling=filling
        )

    def as_owner(self) -> Git:
        """The same, but what it commits is the repository owner's."""
        found = copy(self)
        found._policy = replace(self._policy, env=environment())  # noqa: SLF001 - of our own class
        return found

    async def run(
        self,
        script: str,
        *arguments: str,
        limit_bytes: int | None = LIMIT_BYTES,
        limit_s: float = LIMIT_S,
        record: Record | None = None,
    ) -> EndedProgram:
        """Run ``script``, and keep ``limit_bytes`` of what it prints (None: nothing, of any length). ``record`` is
        passed all its output.

        Raises NoRepositoryError if there is no git directory at all, GitError for any other failure,
        SandboxUnavailableError, and what ``record`` raises.
        """
        # If it is a link, the sandbox says what is wrong.
        if not os.path.lexists(self.workdir / ".git"):
            raise NoRepositoryError(NOT_GIT)
        launch = self._sandbox.wrap(("/bin/sh", "-c", script, "git", *arguments), self._policy)
        try:
            ended = await run_to_end(launch, limit_bytes=limit_bytes, limit_s=limit_s, record=record)
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
    """The environment of every git here: none of our variables, and a configuration that runs nothing."""
    env = {**ENV, "GIT_CONFIG_COUNT": str(len(CONFIG))}
    for at, (key, value) in enumerate(CONFIG):
        env |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return env


class Snapshot(Struct, frozen=True):
    """A snapshot: its commit, and its tree, which is the same for the same content."""

    commit: str
    tree: str


class FileChange(Struct, frozen=True):
    """One changed file, and how many lines were added and removed; None for a binary file. ``old``: its path
    before, "" if unchanged."""

    path: str
    added: int | None
    removed: int | None
    old: str = ""


class Difference(Struct, frozen=True):
    """The changes between two git objects. ``commits`` are those in between, newest first, each with its
    subject; ``body`` is the diff, ``cut`` if it is longer than the limit."""

    before: str
    after: str
    files: tuple[FileChange, ...]
    commits: tuple[str, ...]
    body: str
    cut: bool = False

    @property
    def stat(self) -> str:
        """The files, one per line, for agents."""
        return "\n".join(f"{file.path} | {file.added or 0}+ {file.removed or 0}-" for file in self.files)


class Committed(Struct, frozen=True):
    """A commit and its branch ("" = none); ``again``: it existed already. ``commit`` is "" if there is
    nothing to commit."""

    commit: str
    branch: str = ""
    again: bool = False


class PutBack(Struct, frozen=True):
    """The paths that were (or would be) restored, those removed because the change created them, and those
    left alone because they changed since. ``commits``: how many the change itself made; they stay."""

    restored: tuple[str, ...]
    left: tuple[str, ...]
    commits: int = 0
    removed: tuple[str, ...] = ()

    @property
    def undone(self) -> int:
        """How many files are undone."""
        return len(self.restored) + len(self.removed)


class Tree:
    """One repository's working tree. One call at a time: they share our own index.

    Every method raises GitError with one line, and SandboxUnavailableError.
    """

    def __init__(self, git: Git) -> None:
        self.git = git
        self._lock = asyncio.Lock()
        self._too_large = False
        self._afters = 0

    async def snapshot(self, name: str) -> Snapshot | None:
        """Take a snapshot of the tree, under ``refs/codebutler/name``; returns it, None without git. One
        whose name ends with AFTER, for which nobody waits, deletes the oldest now and then.

        It includes untracked files; not ignored ones or files above MAX_FILE_BYTES. After git has once taken
        more than SNAPSHOT_S seconds there are no more snapshots: no turn should wait for that again.
        """
        if self._too_large:
            return None
        async with self._lock:
            first = 0
            if name.endswith(AFTER):
                first = 0 if self._afters % PRUNE_EVERY else KEPT_REFS + 1
                self._afters += 1
            try:
                said = await self.git.run(SNAPSHOT, _BLOCKS, name, str(first), limit_s=SNAPSHOT_S)
            except NoRepositoryError:
                return None
            except GitSlowError as error:
                self._too_large = True
                raise GitError(f"{error} to keep the working tree, so no turn can be undone here") from error
        if (found := _SNAPSHOT.fullmatch(said.output.decode(errors="replace"))) is None:
            raise GitError(UNEXPECTED)
        return Snapshot(found["commit"], found["tree"])

    async def difference(
        self,
        before: str | None = None,
        after: str | None = None,
        *,
        limit_bytes: int = 2**20,
        files: Sequence[FileChange] = (),
    ) -> Difference:
        """The changes from one snapshot to another; without them, of the working tree since HEAD, with
        untracked files. ``files``: limits the body to them."""
        pair = (_checked(before), _checked(after)) if before and after else ("-", NOW)
        paths = [path for file in files for path in (file.old, file.path) if path]
        async with self._lock:
            # One byte above the limit shows whether there is more.
            said = await self.git.run(DIFF, _BLOCKS, str(limit_bytes + 1), *pair, *paths)
        ends, _, rest = said.output.partition(b"\0")
        commits, _, rest = rest.partition(b"\0")
        changed, body = parsed(rest)
        first, _, last = _text(ends).partition(" ")
        cut = said.cut or len(body) > limit_bytes
        made = tuple(_text(commits).splitlines())
        return Difference(_checked(first), _checked(last), changed, made, _text(body[:limit_bytes]), cut)

    async def commit(
        self, before: str, after: str, name: str, message: str, sign: Sign | None = None
    ) -> Committed:
        """Commit the changes from one snapshot to the other, and nothing else, as the repository's owner;
        once per ``name``. The working tree stays as it is. Raises what ``sign`` raises too."""
        words = (_checked(before), _checked(after), name, message)
        async with self._lock:
            said = await self.git.as_owner().run(COMMIT, *words, "sign" if sign else "")
            if sign is not None and said.output.startswith(UNSIGNED.encode()):
                signed = base64.b64encode(await sign(said.output)).decode()
                said = await self.git.as_owner().run(COMMIT, *words, signed)
        how, _, rest = _text(said.output).strip().partition(" ")
        if how == NOTHING_LEFT:
            return Committed("")
        commit, _, branch = rest.partition(" ")
        return Committed(_checked(commit), branch, again=how == "again")

    async def put_back(self, before: str, after: str | None, mode: Literal["check", "apply"]) -> PutBack:
        """Undo the changes from ``before`` to ``after`` (None = now), or only preview that.

        Files changed since stay as they are; the index and the branch are not touched.
        """
        last = _checked(after) if after else NOW
        async with self._lock:
            said = await self.git.run(PUT_BACK, _BLOCKS, mode, _checked(before), last)
        commits, *paths = [_text(part) for part in said.output.split(b"\0")]
        return PutBack(
            restored=tuple(path[1:] for path in paths if path.startswith("+")),
            left=tuple(path[1:] for path in paths if path.startswith("=")),
            commits=int(commits) if commits.isdecimal() else 0,
            removed=tuple(path[1:] for path in paths if path.startswith("-")),
        )


def parsed(output: bytes) -> tuple[tuple[FileChange, ...], bytes]:
    """Parses the output of `git diff --numstat -z`, ended by one more NUL, and returns what follows it. Files after the
    place where it was cut off are left out. Linear: an agent decides how many files there are. Pure."""
    found: list[FileChange] = []
    at = 0
    while at < len(output) and output[at] != 0:
        try:
            record, at = _field(output, at)
            added, removed, path = record.split(b"\t", 2)
            old = b""
            if not path:
                old, at = _field(output, at)
                path, at = _field(output, at)
        except ValueError:
            return tuple(found), b""
        found.append(FileChange(_text(path), _number(added), _number(removed), _text(old)))
    return tuple(found), output[at + 1 :]


def _field(output: bytes, at: int) -> tuple[bytes, int]:
    """The field at ``at``, up to the next NUL, and where the next field begins. Raises ValueError if there is no
    NUL."""
    end = output.index(b"\0", at)
    return output[at:end], end + 1


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None


def _checked(commit: str) -> str:
    if not COMMIT_ID.fullmatch(commit):
        raise GitError(UNEXPECTED)
    return commit


def _text(output: bytes) -> str:
    return output.decode(errors="replace")

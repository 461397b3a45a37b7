"""Creates work trees with git on the host: empty ones, and clones with the owner's own credentials.

A remote repository is hostile. It is fetched without a checkout, using the owner's configuration, which holds the
credentials; its files are then checked out without any configuration, so that nothing in it (attributes, filters,
LFS, hooks, submodules) starts a program. The result holds only what git wrote: no hook, no template, no credential.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shutil
import signal
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from msgspec import Struct

from codebutler.config.git_repo import BOUNDED, BOUNDED_PINS, RUN_AS_USER, Address, Owner, unreachable_because
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.processes import MARK, own_mark
from codebutler.platform.tasks import beside

LOOK_S = 1.0
FIRST_WORD_S, NEXT_WORD_S = 5.0, 10.0
SAID_BYTES = 20_000
PASSED_ON = (
    "PATH", "HOME", "LANG", "USER", "LOGNAME", "XDG_CONFIG_HOME", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
"""The parts of the owner's environment that git and its helpers need; none of our tokens."""
PINS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "transfer.bundleURI=false",
    "protocol.ext.allow=never",
    "protocol.file.allow=never",
    "safe.bareRepository=explicit",
    *(f"{key}={value}" for key, value in BOUNDED_PINS),
)
TOO_LONG = (
    "cloning took longer than {minutes:g} min (`newRepos.timeoutMinutes`): clone it on the machine, then run "
    "`codebutler add-repo`"
)
TOO_LARGE = (
    "it needs more than {mb:g} MB of disk space (`newRepos.maxMb`): clone it on the machine, then run "
    "`codebutler add-repo`"
)
REASONS = (
    (
        r"Host key verification failed",
        "its SSH host key is unknown on the machine: connect to it with ssh there once",
    ),
    (
        r"could not read (Username|Password)|Authentication failed|Permission denied|access rights|\b40[13]\b",
        "it does not exist, or this machine's owner has no access to it: try `git ls-remote` on the machine",
    ),
    (r"not found|does not exist|not appear to be a git repository", "the repository does not exist"),
    (
        r"resolve host|unable to access|Connection|timed out|not connect",
        "the machine cannot reach its host",
    ),
    (r"attempting to allocate", "one of its files needs too much memory: clone it on the machine"),
    (r"No space left|quota exceeded", "the machine has no disk space left"),
)
"""Git's messages, and the texts that users get instead: git's own may contain a URL with a password."""
_PROGRESS = re.compile(r"(Receiving objects|Resolving deltas): +\d+%")

Told = Callable[[str], Awaitable[None]]
"""Receives a clone's progress: git's name for the stage, and how much of it is done."""


class CheckoutLimits(Struct, frozen=True):
    """Limits of a clone: seconds, and bytes on disk (0 = any)."""

    seconds: float
    max_bytes: int


class CheckoutError(CodeButlerError):
    """Git exited with an error; the text is git's own, which users do not see."""


class FreshCheckout:
    """Creates work trees in ``root``, as its owner if we are root. ``env``: the supervisor's environment."""

    def __init__(self, root: Path, env: Mapping[str, str], limits: CheckoutLimits, clock: Clock) -> None:
        self._root = root
        self._env = env
        self._limits = limits
        self._clock = clock
        self._owner = Owner.at(root) if os.geteuid() == 0 and root.is_dir() else None

    def refuse_unfit(self) -> None:
        """Raises CodeButlerError if nothing can be created there. Blocks."""
        if shutil.which("git", path=self._env.get("PATH")) is None:
            raise CodeButlerError("git is not installed on this machine: install it")
        named = f"`newRepos.root` is {self._root}, which"
        if not self._root.is_dir():
            raise CodeButlerError(f"{named} is not a directory: create it")
        if self._owner is not None and self._owner.is_root:
            raise CodeButlerError(
                f"{named} belongs to root: give it to an ordinary user, or better, {RUN_AS_USER}"
            )
        if self._owner is not None and (why := unreachable_because(self._owner, self._root / "any")):
            raise CodeButlerError(why)
        if not os.access(self._root, os.W_OK | os.X_OK):
            raise CodeButlerError(f"{named} cannot be written: check its permissions")

    async def empty(self, place: Path) -> None:
        """Create a repository without a commit. Raises CodeButlerError."""
        try:
            await self._git("init", "-q", "--template=", "--initial-branch=main", "--", str(place))
        except CheckoutError:
            raise CodeButlerError(f"git could not create {place}: check whether its disk is full") from None

    async def name_author(self, place: Path, author: str) -> None:
        """Who commits there: ``NAME <ADDRESS>``; "" = as git is configured. Raises CodeButlerError."""
        name, _, address = author.rstrip(">").partition(" <")
        try:
            for key, value in (("user.name", name), ("user.email", address)) if author else ():
                await self._git("-C", str(place), "config", key, value)
        except CheckoutError:
            raise CodeButlerError(
                f"git could not set the author in {place}: check whether its disk is full"
            ) from None

    async def clone(self, url: str, address: Address, place: Path, told: Told) -> None:
        """Clone ``url``, which parsed as ``address``. Raises CodeButlerError, without a secret."""
        clone = ("clone", "--progress", "--no-checkout", "--no-recurse-submodules", "--template=")
        words = (*clone, "--origin=origin", "--", url, str(place))
        try:
            async with asyncio.timeout(self._limits.seconds):
                await self._git(*words, grows=place, told=told, is_owners=True)
                # Without a commit there are no files.
                if await self._has_commit(place):
                    await self._git("-C", str(place), "reset", "-q", "--hard", grows=place)
        except TimeoutError:
            raise CodeButlerError(TOO_LONG.format(minutes=self._limits.seconds / 60)) from None
        except CheckoutError as error:
            raise CodeButlerError(f"cannot clone {address.shown}: {reason(str(error))}") from None

    async def _has_commit(self, place: Path) -> bool:
        try:
            await self._git("-C", str(place), "rev-parse", "-q", "--verify", "HEAD")
        except CheckoutError:
            return False
        return True

    async def _git(
        self, *words: str, grows: Path | None = None, told: Told | None = None, is_owners: bool = False
    ) -> None:
        """Run git to the end, with the owner's configuration or none; ``grows``: the directory whose size is limited.
        Raises CodeButlerError, GitError."""
        pins = [word for pin in PINS for word in ("-c", pin)]
        owner = self._owner
        # Not a pipe: what git leaves running (a shared ssh connection) would keep it open.
        with tempfile.TemporaryFile() as said:
            try:
                process = await asyncio.create_subprocess_exec(
                    *("git", *pins, *words),
                    env=self._environment(is_owners=is_owners),
                    cwd=self._root,
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=said,
                    # Without a terminal nothing can ask for a password.
                    start_new_session=True,
                    user=None if owner is None else owner.uid,
                    group=None if owner is None else owner.gid,
                    extra_groups=None if owner is None else (),
                )
            except OSError as error:
                raise CodeButlerError(f"git cannot be started: {error.strerror}") from None
            run = Run(process, said)
            try:
                async with beside(self._watch(run, grows, told), name="size of a clone"):
                    await process.wait()
            finally:
                if process.returncode is None:
                    run.kill()
                    await process.wait()
            if run.is_too_large:
                raise CodeButlerError(TOO_LARGE.format(mb=self._limits.max_bytes / 1e6))
            if process.returncode:
                raise CheckoutError(run.said)

    async def _watch(self, run: Run, grows: Path | None, told: Told | None) -> None:
        """Stop git if the directory gets too large; report progress from time to time."""
        next_s = self._clock.monotonic() + FIRST_WORD_S
        while grows is not None:
            await self._clock.sleep(LOOK_S)
            if self._limits.max_bytes and await asyncio.to_thread(size_of, grows) > self._limits.max_bytes:
                run.is_too_large = True
                run.kill()
            if told is not None and self._clock.monotonic() >= next_s:
                next_s = self._clock.monotonic() + NEXT_WORD_S
                await told(run.progress)

    def _environment(self, *, is_owners: bool) -> dict[str, str]:
        env = {name: self._env[name] for name in PASSED_ON if self._env.get(name)}
        if self._owner is not None:
            env["HOME"] = str(_home_of(self._owner, env.get("HOME", "")))
        env |= {
            "LC_ALL": "C",
            "GIT_ALLOW_PROTOCOL": "https:ssh" if is_owners else "",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "",
            "SSH_ASKPASS_REQUIRE": "never",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_NO_LAZY_FETCH": "1",
            **BOUNDED,
            # If we are killed, the next supervisor stops it.
            MARK: own_mark(),
        }
        if not is_owners:
            nobodys = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_ATTR_NOSYSTEM": "1"}
            env |= {**nobodys, "HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}
        return env


class Run:
    """A running git, its output, and its progress."""

    def __init__(self, process: Process, said: IO[bytes]) -> None:
        self._process = process
        self._said = said
        self.is_too_large = False

    @property
    def said(self) -> str:
        """The end of its output so far."""
        fd = self._said.fileno()
        start = max(0, os.fstat(fd).st_size - SAID_BYTES)
        return os.pread(fd, SAID_BYTES, start).decode(errors="replace")

    @property
    def progress(self) -> str:
        """Its last progress message; "" if there is none."""
        found = [*_PROGRESS.finditer(self.said)]
        return found[-1][0].lower() if found else ""

    def kill(self) -> None:
        """Kill it and everything it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _home_of(owner: Owner, ours: str) -> Path:
    """Whose credentials root uses: those of ``owner``, who may be the owner of our ``HOME``."""
    with suppress(OSError):
        if ours and Owner.at(Path(ours)).uid == owner.uid:
            return Path(ours)
    with suppress(KeyError):
        return Path(pwd.getpwuid(owner.uid).pw_dir)
    return Path("/nonexistent")


def reason(said: str) -> str:
    """Why git failed, for users. Pure."""
    found = (told for pattern, told in REASONS if re.search(pattern, said, re.IGNORECASE))
    return next(found, "git failed: try `git clone` on the machine")


def size_of(place: Path) -> int:
    """Bytes on disk. Files that vanish meanwhile count as nothing. Blocks."""
    total = 0
    for directory, _, files in os.walk(place):
        for name in files:
            with suppress(OSError):
                total += Path(directory, name).lstat().st_blocks * 512
    return total

"""``repos.json``: the served repositories, each with its name, its channel and its trusted files.

One of these is ``jobs.yaml``: a commit must not make jobs run here by itself. A file that git does not track is the
owner's own. One that git tracks came with a clone or a pull, and counts only once it is trusted. Its origin is
recorded: an agent may take it out of git's index, but not out of the registry.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

from codebutler.config.git_repo import is_tracked
from codebutler.config.load import parse_as
from codebutler.config.paths import PRIVATE_DIR, Home, RepoPaths
from codebutler.config.trust import digest
from codebutler.domain.errors import ConfigError, RegistryError
from codebutler.domain.refs import NO_CHANNEL, ConversationRef
from codebutler.platform.files import PrivateDir

RepoEntries = tuple["RepoEntry", ...]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RESERVED = frozenset({"all"})
MAX_REGISTRY_BYTES = 2**20
JOBS_NAME = "jobs.yaml"
JOBS_PATH = f"{PRIVATE_DIR}/{JOBS_NAME}"
MAX_FOREIGN_DIGESTS = 20


class RepoEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One registered repository.

    ``digest`` is the SHA-256 of the trusted per-repo config ("" = none is trusted). ``channel_id`` is kept
    here too: an agent that edits its own config cannot move itself into another repository's channel.
    ``jobs_digest`` is that of the trusted ``jobs.yaml``, for one that came with the repository's content;
    ``foreign_jobs`` those of untrusted ones, the latest last. ``skills_digest`` is that of the trusted
    skills.
    """

    name: str
    path: str
    digest: str = ""
    channel_id: ConversationRef = msgspec.field(default=NO_CHANNEL, name="channelID")
    jobs_digest: str = msgspec.field(default="", name="jobsDigest")
    foreign_jobs: tuple[str, ...] = msgspec.field(default=(), name="foreignJobs")
    skills_digest: str = msgspec.field(default="", name="skillsDigest")

    @property
    def host(self) -> str:
        """The host that the repository is on; "" for one on this machine."""
        return host_in(self.path)


class _RegistryFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    repos: tuple[RepoEntry, ...] = ()


def host_in(path: str) -> str:
    """``laptop`` in ``laptop:shop``, as the gateway registers a repository of a host; "" in a path on this machine."""
    host, colon, _ = path.partition(":")
    return host if colon and "/" not in host else ""


class Registry:
    """The registry file of a home. Each change is read, made and written as a whole under a lock."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def load(self) -> RepoEntries:
        """All entries, in order of registration. Raises ConfigError if the file is damaged."""
        if not self._home.root.is_dir():
            return ()
        with self._home.open() as directory:
            data = directory.read(self._home.registry.name, MAX_REGISTRY_BYTES)
        return parse_registry(data, str(self._home.registry)) if data is not None else ()

    def update(self, change: Callable[[RepoEntries], RepoEntries]) -> RepoEntries:
        """Apply a change and write the result. Raises what ``change`` raises, and CodeButlerError."""
        with self.locked() as directory:
            entries = change(self.load())
            document = msgspec.json.format(msgspec.json.encode(_RegistryFile(entries)), indent=2)
            directory.write(self._home.registry.name, document + b"\n")
        return entries

    @contextmanager
    def locked(self) -> Iterator[PrivateDir]:
        """The home, while no other process changes its registry or configuration. Blocks; not reentrant."""
        with self._home.open() as directory:
            lock = os.open(self._home.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield directory
            finally:
                os.close(lock)


def parse_registry(data: bytes, source: str) -> RepoEntries:
    """Entries from the file's bytes. Raises ConfigError, also if two of them exclude each other."""
    parsed = parse_as(data, source, _RegistryFile)
    entries: RepoEntries = ()
    for entry in parsed.repos:
        try:
            entries = add(entries, entry)
        except RegistryError as error:
            raise ConfigError(f"{source}: {error}") from error
    return entries


def add(entries: RepoEntries, entry: RepoEntry) -> RepoEntries:
    """The entries with one more. Raises RegistryError if its name, path or channel is taken, or its name is invalid."""
    if not _NAME.fullmatch(entry.name) or entry.name in _RESERVED:
        raise RegistryError(
            f"{entry.name!r} cannot be a repository's name: use letters, digits, '.', '_' and '-' (--name)"
        )
    for other in entries:
        if other.path == entry.path:
            raise RegistryError(
                f"{entry.path} is already registered as {other.name}: "
                f"run `codebutler remove-repo {other.name}` first"
            )
        if other.name.lower() == entry.name.lower():
            raise RegistryError(
                f"the name {other.name} is already taken by {other.path}: choose another with --name"
            )
        _refuse_shared_channel(other, entry)
    return (*entries, entry)


def remove(entries: RepoEntries, name: str) -> RepoEntries:
    """The entries without the one of that name. Raises RegistryError if there is none."""
    removed = find(entries, name)
    return tuple(entry for entry in entries if entry is not removed)


def replace(entries: RepoEntries, entry: RepoEntry) -> RepoEntries:
    """The entries with the one of that name replaced. Raises RegistryError if there is none or the channel is taken."""
    old = find(entries, entry.name)
    for other in entries:
        if other is not old:
            _refuse_shared_channel(other, entry)
    return tuple(entry if other is old else other for other in entries)


def find(entries: Sequence[RepoEntry], name: str) -> RepoEntry:
    """The one of that name. Raises RegistryError, listing the existing ones."""
    for entry in entries:
        if entry.name == name:
            return entry
    known = ", ".join(entry.name for entry in entries)
    raise RegistryError(
        f"no repository is registered as {name!r}"
        + (f"; registered: {known}" if known else ": register one with `codebutler add-repo PATH`")
    )


def name_for(path: Path) -> str:
    """A name made from the directory's; may be taken."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", strip_accents(path.name)).strip("-._")[:64] or "repo"


def _refuse_shared_channel(other: RepoEntry, entry: RepoEntry) -> None:
    if entry.channel_id and other.channel_id == entry.channel_id:
        raise RegistryError(
            f"channel {entry.channel_id} already belongs to {other.name}: "
            "each repository needs its own channel"
        )


class JobsProvenance:
    """Decides about the ``jobs.yaml`` of registered repositories. Asks git once per content; may block."""

    def __init__(self, registry: Registry, tracked: Callable[[Path, str], bool] = is_tracked) -> None:
        self._registry = registry
        self._tracked = tracked
        self._own: set[tuple[str, str]] = set()
        self._foreign: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def objection(self, entry: RepoEntry, data: bytes) -> str:
        """Why a file with this content does not count, in words that follow its path; "" if it does.

        Raises CodeButlerError if that cannot be determined or recorded.
        """
        jobs_digest = digest(data)
        if jobs_digest == entry.jobs_digest:
            return ""
        with self._lock:
            if self._is_foreign(entry, jobs_digest):
                return f"came with the repository: read it, then run `codebutler trust {entry.name}`"
        return ""

    def _is_foreign(self, entry: RepoEntry, jobs_digest: str) -> bool:
        known = (entry.path, jobs_digest)
        if known in self._foreign or jobs_digest in entry.foreign_jobs:
            return True
        if known in self._own:
            return False
        repo = RepoPaths(Path(entry.path))
        # Git does not list the files of a submodule's work tree.
        is_submodule = os.path.lexists(repo.root / ".git")
        if not is_submodule and not self._tracked(repo.repo, JOBS_PATH):
            self._own.add(known)
            return False
        self._registry.update(partial(_record_foreign, name=entry.name, jobs_digest=jobs_digest))
        self._foreign.add(known)
        return True


def read_jobs(entry: RepoEntry) -> bytes | None:
    """The repository's own ``jobs.yaml``, None if it has none; never through a link. Raises ConfigError."""
    if entry.host:
        return None
    try:
        with RepoPaths(Path(entry.path)).open() as directory:
            return directory.read(JOBS_NAME)
    except FileNotFoundError:
        return None


def _record_foreign(entries: RepoEntries, name: str, jobs_digest: str) -> RepoEntries:
    entry = find(entries, name)
    others = tuple(each for each in entry.foreign_jobs if each != jobs_digest)
    digests = (*others, jobs_digest)[-MAX_FOREIGN_DIGESTS:]
    return replace(entries, msgspec.structs.replace(entry, foreign_jobs=digests))


def strip_accents(text: str) -> str:
    """Letters without accents and dots, ß as ss; letters without such a base (日, я) stay as they are.

    Source: Unicode's compatibility decomposition (UAX 15, NFKD).
    """
    decomposed = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))

"""Registers a repository: checks first everything that could stop it later, then writes its place into its config and
trusts the config as it now is. Shared by the command line and the chat command; nothing is changed before all checks
have passed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from codebutler.config.channels import CHANNEL_KEYS, channel_in, set_channel
from codebutler.config.git_repo import ROOTS_OWN, Owner, is_tracked
from codebutler.config.load import check_layer, parse_layer, put
from codebutler.config.paths import CONFIG_NAME, Home, RepoPaths, make_private
from codebutler.config.registry import Registry, RepoEntries, RepoEntry, add, read_jobs
from codebutler.config.resolve import read_repo_config
from codebutler.config.trust import digest, strip_untrusted
from codebutler.domain.errors import ConfigError
from codebutler.platform.files import PrivateDir

GITIGNORE = ".gitignore"
IGNORE_ALL = b"*\n"


def check_repo(registry: Registry, where: Home, entry: RepoEntry) -> None:
    """Raises CodeButlerError if anything prevents serving the repository, or if it is registered already.
    Its own config is not checked."""
    root = Path(entry.path)
    try:
        entry.path.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{root}: the path is not UTF-8: rename its directory") from None
    _refuse_home_within(root, where)
    _refuse_foreign_store(root)
    add(registry.load(), entry)
    # No agent could start in root's repository: say it now, not at the first message.
    if os.geteuid() == 0 and Owner.at(root).is_root:
        raise ConfigError(ROOTS_OWN.format(repo=root))
    read_jobs(entry)
    for directory in (RepoPaths(root).root, where.root):
        existing = next(each for each in (directory, *directory.parents) if os.path.lexists(each))
        if not os.access(existing, os.W_OK | os.X_OK):
            raise ConfigError(
                f"{existing} cannot be written: check its permissions, and that its disk is not read-only"
            )


def register(
    registry: Registry, entry: RepoEntry, layer: dict[str, Any], channel: str, agent: str = ""
) -> tuple[RepoEntry, tuple[str, ...]]:
    """Write ``layer`` with its channel (named ``channel``) into the prepared private directory, register the
    repository and trust that file. Returns the entry as stored, and the guarded keys that prevent trust: git tracks
    the file, so they came with the repository. Raises CodeButlerError."""
    if entry.channel_id:  # a host's repositories have none: its gateway has their channels
        set_channel(layer, entry.channel_id, channel.removeprefix("#"))
    if agent:
        put(layer, ("agent", "default"), agent)
    paths = RepoPaths(Path(entry.path))
    check_layer(layer, str(paths.config))
    registered: list[tuple[RepoEntry, tuple[str, ...]]] = []

    def written(entries: RepoEntries) -> RepoEntries:
        add(entries, entry)  # another command may have taken its place since the checks
        with paths.open() as directory:
            directory.write(CONFIG_NAME, encode_config(layer))
        trusted, guarded = trust_entry(entry)
        foreign = _came_with_the_repository(paths.repo, guarded)
        registered.append((entry if foreign else trusted, foreign))
        return add(entries, registered[0][0])

    registry.update(written)
    return registered[0]


def prepare_directory(paths: RepoPaths) -> PrivateDir:
    """The repository's private directory, created if missing: mode 0700, ignored by git. Enter it to use it. Raises
    ConfigError if a link or a file is in its place."""
    with paths.open(create=True) as directory:
        make_private(paths.root)
        if directory.read(GITIGNORE) != IGNORE_ALL:
            directory.write(GITIGNORE, IGNORE_ALL)
    return paths.open()


def encode_config(layer: dict[str, Any]) -> bytes:
    """A config file's content, for people to read and edit."""
    return msgspec.json.format(msgspec.json.encode(layer), indent=2) + b"\n"


def _refuse_home_within(root: Path, where: Home) -> None:
    """Raises CodeButlerError if the home is in the repository: agents may write there, so tokens and registry must not
    be there."""
    if where.root.resolve().is_relative_to(root):
        raise ConfigError(
            f"{where.root} is inside {root}, where agents may write: "
            "choose another CODEBUTLER_HOME or another repository"
        )


def _refuse_foreign_store(root: Path) -> None:
    """Raises CodeButlerError for a store that came with the repository: it could hold turns to run and messages to
    post."""
    if is_tracked(root, ".codebutler/store.db*"):
        raise ConfigError(
            f"git tracks a store.db in {root}/.codebutler, so it came with the repository: remove it with "
            "`git rm --cached '.codebutler/store.db*'`, and delete it unless it is your own"
        )


def trust_entry(entry: RepoEntry) -> tuple[RepoEntry, tuple[str, ...]]:
    """(the entry with the digest and channel of its file as it is now, the guarded keys that file sets). Raises
    ConfigError if the file cannot be used."""
    data = read_repo_config(entry)
    if data is None:
        return msgspec.structs.replace(entry, digest=""), ()
    layer = parse_layer(data, f"{entry.path}/.codebutler/config.json")
    _, guarded = strip_untrusted(layer)
    channel = channel_in(layer) or entry.channel_id
    return msgspec.structs.replace(entry, digest=digest(data), channel_id=channel), guarded


def _came_with_the_repository(root: Path, guarded: tuple[str, ...]) -> tuple[str, ...]:
    """The guarded keys that nobody here has set: those in a config file that git tracks."""
    keys = tuple(key for key in guarded if key not in CHANNEL_KEYS)
    return keys if keys and is_tracked(root, f".codebutler/{CONFIG_NAME}") else ()

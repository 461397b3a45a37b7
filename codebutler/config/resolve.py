"""The configuration in force: defaults, then the home's file, the repository's file, the environment."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codebutler.config.channels import channel_in, registered
from codebutler.config.env import env_layers, parse_env_file
from codebutler.config.load import check_layer, parse_layer
from codebutler.config.merge import Layer, Merged, default_layer, merge
from codebutler.config.paths import CONFIG_NAME, Home, RepoPaths
from codebutler.config.registry import RepoEntry
from codebutler.config.schema import Config
from codebutler.config.trust import digest, strip_misplaced, strip_untrusted, tightened
from codebutler.domain.errors import ConfigError

REGISTRY = "repos.json"


@dataclass(frozen=True)
class Resolved:
    """The merged configuration; ``values`` is the same as JSON, ``provenance`` maps dotted keys to sources.

    ``notes`` are warnings for people, one line each. ``trusted`` is false while a repository's file is not
    the one that was vouched for.
    """

    config: Config
    values: dict[str, Any]
    provenance: Mapping[str, str]
    notes: tuple[str, ...] = ()
    trusted: bool = True


def resolve_global(home: Home, env: Mapping[str, str]) -> Resolved:
    """Without a repository. Raises ConfigError (LegacyConfigError for a WhatsApp-era file)."""
    merged = merge([default_layer(), *_home_layers(home), *_environment(home, env)])
    return _resolved(merged, "the merged configuration")


def resolve_repo(home: Home, entry: RepoEntry, env: Mapping[str, str]) -> Resolved:
    """For one repository.

    Its channel is the registered one. While the digest of its file is not the registered one, of the guarded
    keys in it only what is stricter counts, and a note says so, as for what only the home's file can say. Raises
    ConfigError if the repository is gone or a file cannot be used.
    """
    source = str(RepoPaths(Path(entry.path)).config)
    data = read_repo_config(entry)
    layer = parse_layer(data, source) if data is not None else {}
    trusted = data is None or digest(data) == entry.digest
    before, after = [default_layer(), *_home_layers(home)], _environment(home, env)
    if entry.channel_id:
        named = channel_in(layer) == entry.channel_id
        below = [*before[1:], Layer(source, layer)]
        after = [registered(entry.channel_id, source if named else REGISTRY, below), *after]
    placed, misplaced = strip_misplaced(layer)
    merged = merge([*before, Layer(source, placed), *after])
    notes = _misplaced_note(source, misplaced, home)
    if not trusted:
        harmless, _ = strip_untrusted(layer)
        safe = merge([*before, Layer(source, harmless), *after])
        merged, applied, ignored = tightened(safe, merged, Layer(source, layer))
        notes = _untrusted_note(entry, source, applied, ignored)
    return _resolved(merged, f"the merged configuration of {entry.name}", notes, trusted=trusted)


def read_repo_config(entry: RepoEntry) -> bytes | None:
    """The bytes of the repository's own file, None if it has none; never through a link.

    Raises ConfigError if the repository is gone, or the file is a link, no regular file, or too large.
    """
    repo = Path(entry.path)
    if not repo.is_dir():
        raise ConfigError(
            f"{entry.name}: {repo} does not exist any more: restore it, "
            f"or run `codebutler remove-repo {entry.name}`"
        )
    try:
        with RepoPaths(repo).open() as directory:
            return directory.read(CONFIG_NAME)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "permission denied" if error.errno == errno.EACCES else (error.strerror or "unknown error")
        raise ConfigError(f"cannot read {RepoPaths(repo).root}: {reason}") from error


def _home_layers(home: Home) -> list[Layer]:
    data = _read_home(home, home.config)
    return [] if data is None else [Layer(str(home.config), parse_layer(data, str(home.config)))]


def env_file_values(home: Home) -> Mapping[str, str]:
    """The variables in the home's ``.env``. Raises ConfigError if it cannot be used."""
    data = _read_home(home, home.env_file)
    return {} if data is None else parse_env_file(data, str(home.env_file))


def _environment(home: Home, env: Mapping[str, str]) -> list[Layer]:
    return [*env_layers(env_file_values(home), str(home.env_file)), *env_layers(env)]


def _read_home(home: Home, file: Path) -> bytes | None:
    if not home.root.is_dir():
        return None
    try:
        with home.open() as directory:
            return directory.read(file.name)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error


def _untrusted_note(
    entry: RepoEntry, source: str, applied: tuple[str, ...], ignored: tuple[str, ...]
) -> tuple[str, ...]:
    parts = [f"ignoring {', '.join(ignored)}"] if ignored else []
    parts += [f"applying {', '.join(applied)}, because that is stricter"] if applied else []
    if not parts:
        return ()
    return (
        f"{source} has changed since it was trusted: {'; '.join(parts)}; "
        f"if the change is yours, run `codebutler trust {entry.name}`",
    )


def _misplaced_note(source: str, misplaced: tuple[str, ...], home: Home) -> tuple[str, ...]:
    if not misplaced:
        return ()
    return (
        f"{source}: ignoring {', '.join(misplaced)}, which there is once for all repositories: "
        f"write it into {home.config}",
    )


def _resolved(merged: Merged, source: str, notes: tuple[str, ...] = (), *, trusted: bool = True) -> Resolved:
    config = check_layer(merged.values, source)
    return Resolved(config, merged.values, merged.provenance, notes, trusted)

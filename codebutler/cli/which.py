"""Which repository a command is about, and what may be said in it."""

from __future__ import annotations

from codebutler.cli.surroundings import home
from codebutler.config.registry import Registry, RepoEntry, find
from codebutler.domain.commands import completions
from codebutler.domain.errors import CodeButlerError, RegistryError


def repository(name: str = "") -> RepoEntry:
    """The registered one of that name; without a name the only one there is. Raises RegistryError."""
    entries = Registry(home()).load()
    if not name and len(entries) != 1:
        names = ", ".join(entry.name for entry in entries) or "none; add one with `codebutler add-repo`"
        raise RegistryError(f"which repository? Registered: {names}")
    return find(entries, name or entries[0].name)


def known_repositories(incomplete: str) -> list[str]:
    """The names that begin so, for the shell's completion; none where the registry cannot be read."""
    try:
        return [entry.name for entry in Registry(home()).load() if entry.name.startswith(incomplete)]
    except CodeButlerError:
        return []


def known_commands(incomplete: str) -> list[tuple[str, str]]:
    """The chat's commands that begin so, after either mark, and what each does."""
    mark = "/" if incomplete.startswith("/") else "!"
    return [(mark + name, gist) for name, gist in completions() if (mark + name).startswith(incomplete)]

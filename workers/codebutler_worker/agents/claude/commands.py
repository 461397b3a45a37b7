"""Claude Code's own commands: which of them a person's message may be, and what a repository's commands say.

A message that begins with ``/name`` is a command to the CLI, and some of its commands change what it may do (``/config
permissionMode=…``), its login or its settings. So only these reach it as commands: those that the user or a trusted
checkout defines, and the built-in ones below, which ask the model or only show something. Anything else is text.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from codebutler_worker.sandbox.destinations import read_regular

BUILT_IN = frozenset(
    {
        *(
            "claude-api",
            "code-review",
            "compact",
            "context",
            "dataviz",
            "deep-research",
            "init",
            "security-review",
        ),
        *("simplify", "usage", "verify"),
    }
)
RESERVED = frozenset(
    {
        *("add-dir", "allowed-tools", "config", "hooks", "login", "logout", "mcp", "model", "permissions"),
        *("plugin", "sandbox", "settings"),
    }
)
"""Commands that change what the CLI may do: never passed on, even if another command has such a name (Claude Code
2.1.328)."""
OWN = (" (user)", " (project)")
"""How the CLI marks, at the end of its description, a command that is not built in."""
LIMIT_BYTES = 64 * 2**10
MOST_LISTED = 40
_NAME = re.compile(r"/([a-z0-9_-]+(?::[a-z0-9_-]+)*)(?:\s+(.*))?\Z", re.IGNORECASE | re.DOTALL | re.ASCII)
_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n.*?^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)


class _Offered(msgspec.Struct, frozen=True):
    """A command that the CLI offers."""

    name: str
    description: str = ""
    builtin: bool = False
    aliases: tuple[str, ...] = ()


class _Offer(msgspec.Struct, frozen=True):
    """The part of its answer to ``initialize`` that names them."""

    commands: tuple[_Offered, ...] = ()


def accepted(initialized: Any) -> frozenset[str]:
    """The names that may reach the CLI as commands, from its answer to ``initialize``."""
    try:
        offer = msgspec.convert(initialized, _Offer)
    except msgspec.ValidationError:
        return frozenset()
    own = {each.name for each in offer.commands if not each.builtin and each.description.endswith(OWN)}
    built_in = {
        name for each in offer.commands if each.name in BUILT_IN for name in (each.name, *each.aliases)
    }
    return frozenset((own | built_in) - RESERVED)


def name_in(text: str) -> str:
    """The command that the message may be, "" if it is none."""
    match = _NAME.match(text)
    return match[1] if match else ""


def expansion(repo: Path, text: str) -> str:
    """What the repository's own command or skill of that name says, as a prompt; "" if it has none.

    The CLI does not read them from a checkout that is not trusted: they could run programs and allow themselves tools.
    Only their words count here.
    """
    match = _NAME.match(text)
    if match is None:
        return ""
    name, said = match[1], (match[2] or "").strip()
    for path in (f".claude/commands/{name.replace(':', '/')}.md", f".claude/skills/{name}/SKILL.md"):
        with contextlib.suppress(OSError):
            body = _FRONT_MATTER.sub(
                "", read_regular(repo, path, LIMIT_BYTES, head=True).decode(errors="replace")
            )
            words = body.replace("$ARGUMENTS", said) if "$ARGUMENTS" in body else f"{body}\n\n{said}"
            return words.strip()
    return ""


def listed(home: Path, repo: Path) -> tuple[str, ...]:
    """The names of the commands and skills that the user and the repository have, sorted."""
    # A link in the repository could lead anywhere on this machine.
    own = repo / ".claude"
    found = {*_names(home / ".claude"), *(_names(own) if not _is_linked(own) else ())} - RESERVED
    return tuple(sorted(name for name in found if name_in(f"/{name}")))[:MOST_LISTED]


def _names(claude: Path) -> Iterator[str]:
    commands = claude / "commands"
    for directory, _, files in os.walk(commands):
        parts = Path(directory).relative_to(commands).parts
        yield from (":".join((*parts, name.removesuffix(".md"))) for name in files if name.endswith(".md"))
    yield from (file.parent.name for file in (claude / "skills").glob("*/SKILL.md"))


def _is_linked(claude: Path) -> bool:
    return any(path.is_symlink() for path in (claude, claude / "commands", claude / "skills"))

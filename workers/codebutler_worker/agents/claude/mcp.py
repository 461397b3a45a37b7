"""The MCP servers of ``claude.mcp`` and our own, as Claude Code reads them. It starts their programs itself, inside its
sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from codebutler.config.section import OURS, McpServer
from codebutler.domain.errors import AgentUnavailableError
from codebutler.platform.lookup import look_up
from codebutler_worker.agents.survey import Surroundings, executable
from codebutler_worker.agents.wishes import server


def servers(
    allowed: Mapping[str, McpServer], around: Surroundings, workdir: Path
) -> tuple[str, tuple[Path, ...]]:
    """(them as JSON, "" for none; the paths that their programs need to read). Raises AgentUnavailableError if a
    program is missing."""
    known: dict[str, dict[str, object]] = {}
    readable: list[Path] = []
    if own := server():
        known[OURS] = _stdio(own)
    for name, each in allowed.items():
        if each.url:
            known[name] = {"type": "http", "url": each.url}
            continue
        argv, needed = _program(name, each.command, around, workdir)
        known[name] = _stdio((*argv, *each.args))
        readable += needed
    return (msgspec.json.encode({"mcpServers": known}).decode() if known else "", tuple(readable))


def _stdio(argv: tuple[str, ...]) -> dict[str, object]:
    return {"type": "stdio", "command": argv[0], "args": argv[1:]}


def _program(
    name: str, command: str, around: Surroundings, workdir: Path
) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """A name is looked up inside, as everything that the agent starts; a program in the repository needs nothing more,
    and its first line must not say what else is readable: an agent may have written it."""
    if "/" in command and not Path(command).is_absolute():
        return (command,), ()
    found = look_up(command, around.path, workdir)
    if found is None:
        raise AgentUnavailableError(
            f"the program {command} of claude.mcp.{name} was not found: install it, or give its absolute path there"
        )
    if "/" not in command or any(place.is_relative_to(workdir) for place in (found, found.resolve())):
        return (command,), ()
    ours = executable(found, around.path, workdir, around.home)
    return ours.argv, ours.readable

"""A command's context: this process's home and environment, its repository, the running supervisor."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from codebutler.cli.output import notice, warn
from codebutler.config.paths import Home
from codebutler.config.registry import Registry, RepoEntry, find
from codebutler.domain.command_help import completions
from codebutler.domain.errors import CodeButlerError, NotRunningError, RegistryError

if TYPE_CHECKING:
    from codebutler.config.resolve import Resolved
    from codebutler.protocol.control import ControlReply, ControlRequest, Done

T = TypeVar("T")


def environment() -> Mapping[str, str]:
    """The variables of this process."""
    return os.environ


def home() -> Home:
    """The home this process's environment names; nothing is created."""
    return Home.from_env(os.environ)


def repository(name: str = "") -> RepoEntry:
    """The repository of that name; without a name the only one. Raises RegistryError."""
    entries = Registry(home()).load()
    if not name and len(entries) != 1:
        names = ", ".join(entry.name for entry in entries) or "none; add one with `codebutler add-repo`"
        raise RegistryError(f"which repository? Registered: {names}")
    return find(entries, name or entries[0].name)


def effective_config(entry: RepoEntry | None = None) -> Resolved:
    """The configuration in force, of a repository or the global one. Raises ConfigError."""
    from codebutler.config.resolve import resolve_global, resolve_repo

    if entry is None:
        return resolve_global(home(), environment())
    return resolve_repo(home(), entry, environment())


def known_repositories(incomplete: str) -> list[str]:
    """Repository names for the shell's completion; none if the registry cannot be read."""
    try:
        return [entry.name for entry in Registry(home()).load() if entry.name.startswith(incomplete)]
    except CodeButlerError:
        return []


def known_commands(incomplete: str) -> list[tuple[str, str]]:
    """Chat commands for completion, after either mark, with their descriptions."""
    mark = "/" if incomplete.startswith("/") else "!"
    return [(mark + name, gist) for name, gist in completions() if (mark + name).startswith(incomplete)]


def send_request(request: ControlRequest, on_reply: Callable[[ControlReply], None] | None = None) -> Done:
    """Send ``request`` and pass every reply on; returns the last one.

    Raises NotRunningError if no supervisor runs, CodeButlerError with its line if it refuses.
    """
    return asyncio.run(_send_request(request, on_reply))


def request_reply(request: ControlRequest, kind: type[T]) -> T:
    """Send ``request`` and return its one reply of that kind. Raises as ``send_request``."""
    found: list[T] = []
    send_request(request, lambda reply: found.append(reply) if isinstance(reply, kind) else None)
    if not found:
        raise CodeButlerError("the supervisor did not answer: see `codebutler status`")
    return found[0]


async def _send_request(request: ControlRequest, on_reply: Callable[[ControlReply], None] | None) -> Done:
    from codebutler.protocol.control import Done, Failed, ask

    async with aclosing(ask(home().socket, request)) as replies:
        async for reply in replies:
            if isinstance(reply, Failed):
                raise CodeButlerError(reply.text)
            if isinstance(reply, Done):
                return reply
            if on_reply is not None:
                on_reply(reply)
    raise CodeButlerError("the supervisor ended while it was working on this: see `codebutler status`")


def reload_supervisor() -> bool:
    """Report on stderr how the supervisor took the change; False if none runs: then there is nothing to do."""
    if not home().socket.exists():
        return False
    from codebutler.protocol.control import ReloadRequest

    try:
        result = send_request(ReloadRequest())
    except NotRunningError:
        return False
    except CodeButlerError as error:
        warn(f"the change is saved, but the running supervisor did not reload: {error}")
    else:
        notice(f"Supervisor reloaded: {result.text}")
    return True

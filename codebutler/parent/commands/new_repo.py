"""``!new NAME``, ``!new-repo NAME``."""

from __future__ import annotations

from codebutler.parent.commands.asked import Asked


async def run(asked: Asked) -> str:
    """Make or clone a repository with its channel."""
    name, _, source = asked.argument.strip().partition(" ")
    return await asked.resources.new_repos.make(name, source.strip(), asked.asker)

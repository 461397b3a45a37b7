"""``!move``."""

from __future__ import annotations

from codebutler.parent.commands.asked import Asked


async def run(asked: Asked) -> str:
    """List the hosts that have the repository, or move it to one of them."""
    return await asked.resources.moves.answer(asked.argument, asked.asker)

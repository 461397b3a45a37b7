"""The tool by which an agent asks for a push. It only answers: the conversation sees the call and posts a card, and a
person decides. So the tool needs no way out of the sandbox, and no credential."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from codebutler_worker.tools.outcome import Result
from codebutler_worker.tools.port import Arguments, Context, Described, Tool

NAME = "ask_to_push"
DESCRIPTION = (
    "Ask the person to push your commits or to open a pull request for them: you cannot push yourself. Commit first. "
    "The person gets a card with buttons and decides later, so do not wait for it, and call this once."
)
WHY = "Why now, in one line that the person reads."
ASKED = "Asked. A person decides; nothing has been pushed yet. Finish your work without waiting for it."


class _AskToPush(Arguments, frozen=True):
    why: Annotated[str, Meta(max_length=2000, description=WHY)]


async def _asked(_context: Context, _args: _AskToPush) -> Result:
    return Result(ASKED)


ASK_TO_PUSH = Tool(
    NAME, DESCRIPTION, "own", _AskToPush, lambda args: Described(args.why, NAME, {"why": args.why}), _asked
)


def is_wish(tool: str) -> bool:
    """Whether a call of ``tool`` is such a wish. Agents put the server's name before the tool's, each in its own way:
    ``mcp__codebutler__ask_to_push``."""
    return tool == NAME or tool.endswith((f"_{NAME}", f"/{NAME}", f".{NAME}", f":{NAME}"))

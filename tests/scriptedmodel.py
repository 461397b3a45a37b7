"""ScriptedModel: a Model that answers from a script, for tests and rehearsals."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable

from codebutler_worker.agents.backend import Refusal, Thinking, Writing
from codebutler_worker.agents.native.model import AssistantMessage, ModelError, ModelReply, ModelRequest

Line = ModelReply | ModelError | Callable[[ModelRequest], ModelReply]
"""One answer: as it stands, a failure, or made from what was asked."""

EXHAUSTED = ModelReply(AssistantMessage("(the script is exhausted)"))


class ScriptedModel:
    """``asked`` are the prompts so far."""

    name = "scripted"

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self.asked: list[ModelRequest] = []
        self._lines = deque(lines)

    def play(self, *lines: Line) -> None:
        """Append to the script."""
        self._lines.extend(lines)

    async def ask(self, prompt: ModelRequest) -> AsyncGenerator[Refusal | Writing | Thinking | ModelReply]:
        """The next line of the script, that it reasons and half of its words first."""
        self.asked.append(prompt)
        line = self._lines.popleft() if self._lines else EXHAUSTED
        if isinstance(line, ModelError):
            raise line
        reply = line if isinstance(line, ModelReply) else line(prompt)
        if reply.said.reasoning:
            yield Thinking("")
        if begun := reply.said.content[: len(reply.said.content) // 2]:
            yield Writing(begun)
        yield reply

    async def close(self) -> None:
        """There is nothing to let go of."""

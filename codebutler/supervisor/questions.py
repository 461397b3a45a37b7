"""What the parent asks a worker: each question waits for its answer, through the worker's sleep and its restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from codebutler.domain.errors import CodeButlerError
from codebutler.protocol.conversations import Question, Told

T = TypeVar("T", bound=Told)

MOST_ASKED = 8
PATIENCE_S = 60.0
"""A worker that sleeps has to start, and git has to look at a large tree."""


class Questions:
    """The questions to one worker. They change nothing, so each process that becomes ready is asked again."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[Question, asyncio.Future[Told]]] = {}
        self._send: Callable[[object], None] | None = None

    def __len__(self) -> int:
        return len(self._asked)

    def answer_to(self, send: Callable[[object], None] | None) -> None:
        """The process that answers from now on, None if there is none."""
        self._send = send
        if send is not None:
            for question, _ in self._asked.values():
                send(question)

    async def ask(self, question: Question, kind: type[T]) -> T:
        """Wait for the answer, which is of that ``kind``. Raises CodeButlerError if there are too many questions, none
        comes, or another."""
        if len(self._asked) >= MOST_ASKED:
            raise CodeButlerError("the worker is asked too much at once: try again")
        answer: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._asked[question.request_id] = question, answer
        try:
            if self._send is not None:
                self._send(question)
            async with asyncio.timeout(PATIENCE_S):
                told = await answer
        except TimeoutError:
            raise CodeButlerError(f"the worker did not answer within {PATIENCE_S:g} s: try again") from None
        finally:
            del self._asked[question.request_id]
        if not isinstance(told, kind):
            raise CodeButlerError("the worker answered something else")
        return told

    def answered(self, answer: Told) -> None:
        """Give it to who asked; what nobody asked is dropped."""
        waiting = self._asked.get(answer.request_id)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(answer)

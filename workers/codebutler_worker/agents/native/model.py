"""Model: what the loop asks of a language model, and what comes back. Nothing here knows HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from codebutler.domain.errors import CodeButlerError

Trouble = Literal["auth", "quota", "limit", "overloaded", "unreachable", "too_long", "refused"]
"""``quota``: no more until it is paid for; ``limit``: no more for now; ``too_long``: the conversation does not fit;
``refused``: it would be refused again."""


class ModelError(CodeButlerError):
    """A model did not answer; the message is one line that says what to do.

    ``retry_after_s``: when the service takes another request, None if it did not say. ``said``: its own words, which
    may be long. ``context``: how many tokens it takes at once, where it told.
    """

    def __init__(
        self,
        trouble: Trouble,
        text: str,
        retry_after_s: float | None = None,
        *,
        said: str = "",
        context: int | None = None,
    ) -> None:
        super().__init__(text)
        self.trouble = trouble
        self.retry_after_s = retry_after_s
        self.said = said
        self.context = context


class System(msgspec.Struct, frozen=True, tag="system", tag_field="role"):
    """The standing orders; the first message."""

    content: str


class User(msgspec.Struct, frozen=True, tag="user", tag_field="role"):
    """What people said, or what we say in their place."""

    content: str


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """The model calls a tool; ``arguments`` is JSON as the model wrote it, and may be no JSON at all. ``extra``: JSON
    that the service wants back with it, unread."""

    id: str
    name: str
    arguments: str
    extra: str = ""


class Assistant(msgspec.Struct, frozen=True, tag="assistant", tag_field="role", omit_defaults=True):
    """What the model said. ``reasoning`` is shown to nobody; some services want it back."""

    content: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""


class Told(msgspec.Struct, frozen=True, tag="tool", tag_field="role"):
    """The result of the call ``call_id``."""

    call_id: str
    content: str


Message = System | User | Assistant | Told


class Tokens(msgspec.Struct, frozen=True):
    """What a request used. ``cached_input`` are those of ``input`` that the service had seen before."""

    input: int = 0
    output: int = 0
    cached_input: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.input + other.input, self.output + other.output, self.cached_input + other.cached_input
        )


@dataclass(frozen=True, slots=True)
class Waiting:
    """The service could not answer and is asked again; one line for people."""

    text: str


@dataclass(frozen=True, slots=True)
class SoFar:
    """What there is so far of the words of an answer; it replaces the one before. "": the model reasons."""

    text: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. ``cut``: the service ended it at a length limit, in the middle of a call if ``lost_call``."""

    said: Assistant
    tokens: Tokens = field(default_factory=Tokens)
    cut: bool = False
    lost_call: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request: the conversation so far, and the definitions of the tools (chat completions' ``tools``)."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()


class Model(Protocol):
    """One language model."""

    name: str

    def ask(self, prompt: Prompt) -> AsyncGenerator[Waiting | SoFar | Reply]:
        """Any number of Waiting and SoFar, then one Reply. Raises ModelError. Closing the iterator cancels the
        request."""

    async def close(self) -> None:
        """Let go of connections. It may be asked again afterwards."""


async def complete(model: Model, prompt: Prompt) -> Reply:
    """The reply alone. Raises ModelError."""
    async with aclosing(model.ask(prompt)) as events:
        async for event in events:
            if isinstance(event, Reply):
                return event
    raise ModelError("unreachable", "the model service ended without an answer: try again")

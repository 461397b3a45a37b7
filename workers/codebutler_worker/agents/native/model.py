"""Model: what the loop asks of a language model, and what it gets back. Nothing here knows HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from codebutler.config.schema import Config, KimiSection, OpenAISection, Price
from codebutler.domain.errors import AgentUnavailableError, CodeButlerError
from codebutler_worker.agents.backend import Refusal, Thinking, Writing

Trouble = Literal["auth", "quota", "limit", "overloaded", "unreachable", "too_long", "refused"]
"""``quota``: nothing more until it is paid for; ``limit``: nothing more for now; ``too_long``: the conversation does
not fit; ``refused``: it would be refused again."""


class ModelError(CodeButlerError):
    """A model did not answer; the message is one line that says what to do.

    ``retry_after_s``: when the service accepts another request, None if it did not say. ``said``: its own words, which
    may be long. ``context``: its context size in tokens, if it said so.
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


class SystemMessage(msgspec.Struct, frozen=True, tag="system", tag_field="role"):
    """The system prompt; the first message."""

    content: str


class UserMessage(msgspec.Struct, frozen=True, tag="user", tag_field="role"):
    """What people said, or what we say in their place."""

    content: str


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """The model calls a tool; ``arguments`` is JSON as the model wrote it, and may be invalid. ``extra``: opaque JSON
    that the service wants back with it."""

    id: str
    name: str
    arguments: str
    extra: str = ""


class AssistantMessage(msgspec.Struct, frozen=True, tag="assistant", tag_field="role", omit_defaults=True):
    """What the model said. ``reasoning`` is not shown to people; some services want it back."""

    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""


class ToolMessage(msgspec.Struct, frozen=True, tag="tool", tag_field="role"):
    """The result of the call ``call_id``."""

    call_id: str
    content: str


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage


class TokenCount(msgspec.Struct, frozen=True):
    """What a request used. ``cached_input`` is the part of ``input`` that was in the service's cache."""

    input: int = 0
    output: int = 0
    cached_input: int = 0

    def __add__(self, other: TokenCount) -> TokenCount:
        return TokenCount(
            self.input + other.input, self.output + other.output, self.cached_input + other.cached_input
        )


class ModelReply(Struct, frozen=True):
    """A whole answer. ``cut``: the service ended it at a length limit; ``lost_call``: in the middle of a call."""

    said: AssistantMessage
    tokens: TokenCount = msgspec.field(default_factory=TokenCount)
    cut: bool = False
    lost_call: bool = False


class ModelRequest(Struct, frozen=True):
    """A request: the conversation so far, and the definitions of the tools (chat completions' ``tools``)."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How to reach a model. ``key`` "" = the service needs none. ``replay_reasoning``: it wants its own reasoning back
    with each request. ``answer_tokens``: the longest answer, None = the service's default. ``context``: its context
    size in tokens."""

    base_url: str
    model: str
    key: str = field(default="", repr=False)
    replay_reasoning: bool = False
    answer_tokens: int | None = None
    context: int = field(default=0, compare=False)


class Model(Protocol):
    """One language model."""

    name: str

    def ask(self, prompt: ModelRequest) -> AsyncGenerator[Refusal | Writing | Thinking | ModelReply]:
        """What people may see meanwhile (Refusal: it could not answer, and is asked again), then one ModelReply. Raises
        ModelError. Closing the iterator cancels the request."""

    async def close(self) -> None:
        """Close connections. It may be used again afterwards."""


async def complete(model: Model, prompt: ModelRequest) -> ModelReply:
    """The reply alone. Raises ModelError."""
    async with aclosing(model.ask(prompt)) as events:
        async for event in events:
            if isinstance(event, ModelReply):
                return event
    raise ModelError("unreachable", "the model service ended without an answer: try again")


# The cost of a model's tokens, from the price list in the configuration.

PER = 1_000_000


def price_of(prices: Mapping[str, Price], model: str) -> Price | None:
    """The model's entry; None without one: then people see tokens instead of money."""
    return prices.get(model)


def cost_usd(tokens: TokenCount, price: Price | None) -> float | None:
    """In USD; None without a price. Cached tokens cost the same as others unless they have their own price."""
    if price is None:
        return None
    cached = min(tokens.cached_input, tokens.input)
    cached_price = price.input if price.cached_input is None else price.cached_input
    total = (tokens.input - cached) * price.input + cached * cached_price + tokens.output * price.output
    return total / PER


KIMI, GROQ, OPENAI, OLLAMA = "kimi", "groq", "openai", "ollama"


class Preset(Struct, frozen=True):
    """``model`` "" = it must be named in the configuration. ``context`` in tokens."""

    base_url: str
    model: str
    context: int
    needs_key: bool = True
    replay_reasoning: bool = False
    answer_tokens: int | None = None


PRESETS = {
    # platform.kimi.ai: thinking models want their reasoning back as long as a task goes on. The answer length is the
    # one that Kimi Code sends (2.1.0), since a written file is part of an answer.
    KIMI: Preset(
        "https://api.moonshot.ai/v1", "kimi-k2.6", 256_000, replay_reasoning=True, answer_tokens=32_000
    ),
    GROQ: Preset("https://api.groq.com/openai/v1", "openai/gpt-oss-120b", 128_000),
    OPENAI: Preset("https://api.openai.com/v1", "", 128_000),
    # Ollama's default is much less than its models can do: OLLAMA_CONTEXT_LENGTH.
    OLLAMA: Preset("http://127.0.0.1:11434/v1", "", 32_000, needs_key=False),
}

OTHER = Preset("", "", 64_000, needs_key=False)
"""A service known only by its address: we learn its context size when a request exceeds it."""


def target(config: Config) -> Endpoint:
    """The endpoint in ``native`` of the configuration. Raises AgentUnavailableError with what is missing.

    Kimi's address, key and model come from ``kimi``, OpenAI's from ``openai``, unless ``native`` has its own.
    """
    native, preset = config.native, PRESETS[config.native.preset]
    sections: dict[str, KimiSection | OpenAISection] = {KIMI: config.kimi, OPENAI: config.openai}
    section = sections.get(native.preset)
    usual = section.base_url if section else preset.base_url
    base_url = native.base_url or usual
    # A key goes only to the service that its owner meant it for.
    own = section if base_url == usual else None
    if base_url != usual:
        preset = OTHER
    key = native.api_key or (own.api_key if own else "")
    model = native.model or (config.kimi.model if own is config.kimi else "") or preset.model
    if not model:
        raise AgentUnavailableError("the built-in agent has no model: set native.model")
    if preset.needs_key and not key:
        key_name = f"{native.preset if own else 'native'}.apiKey"
        raise AgentUnavailableError(f"the built-in agent has no key: run `codebutler config set {key_name}`")
    context = native.context_tokens or preset.context
    return Endpoint(base_url, model, key, preset.replay_reasoning, preset.answer_tokens, context)

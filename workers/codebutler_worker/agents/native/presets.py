"""Where the model is: services that are known by name, and any other by its address. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codebutler.config.schema import Config, Price
from codebutler.domain.errors import AgentUnavailableError
from codebutler_worker.agents.native.model import Tokens
from codebutler_worker.agents.native.service import Endpoint

# What a model's tokens cost, by the price list of the configuration.

PER = 1_000_000


def price_of(prices: Mapping[str, Price], model: str) -> Price | None:
    """The model's entry; None if nobody has written one: then tokens are shown instead of money."""
    return prices.get(model)


def cost_usd(tokens: Tokens, price: Price | None) -> float | None:
    """In USD; None without a price. Without one of its own a cached token costs what any other does."""
    if price is None:
        return None
    cached = min(tokens.cached_input, tokens.input)
    cached_price = price.input if price.cached_input is None else price.cached_input
    total = (tokens.input - cached) * price.input + cached * cached_price + tokens.output * price.output
    return total / PER


KIMI, GROQ, OPENAI, OLLAMA = "kimi", "groq", "openai", "ollama"


@dataclass(frozen=True, slots=True)
class Preset:
    """``model`` "" = it has to be named in the configuration. ``context`` in tokens."""

    base_url: str
    model: str
    context: int
    needs_key: bool = True
    replay_reasoning: bool = False
    answer_tokens: int | None = None


PRESETS = {
    # platform.kimi.ai: thinking models want their reasoning back as long as a task goes on. How long an answer may be
    # is told as Kimi Code tells it (2.1.0), since a file that is written is an answer, too.
    KIMI: Preset(
        "https://api.moonshot.ai/v1", "kimi-k2.6", 256_000, replay_reasoning=True, answer_tokens=32_000
    ),
    GROQ: Preset("https://api.groq.com/openai/v1", "openai/gpt-oss-120b", 128_000),
    OPENAI: Preset("https://api.openai.com/v1", "", 128_000),
    # What Ollama takes by default is much less than its models could: OLLAMA_CONTEXT_LENGTH.
    OLLAMA: Preset("http://127.0.0.1:11434/v1", "", 32_000, needs_key=False),
}

OTHER = Preset("", "", 64_000, needs_key=False)
"""A service that is known by its address only: what it takes is found out when it is too much."""


@dataclass(frozen=True, slots=True)
class Target:
    """The model to ask, and how many tokens it takes at once."""

    endpoint: Endpoint
    context: int


def target(config: Config) -> Target:
    """What ``native`` of the configuration says. Raises AgentUnavailableError with what is missing.

    Kimi's address, key and model are those of ``kimi``, OpenAI's those of ``openai``, unless ``native`` has its own.
    """
    native = config.native
    preset = PRESETS[native.preset]
    base_url = native.base_url or _base_url(config, preset)
    own = base_url == _base_url(config, preset)
    if not own:
        preset = OTHER
    key = native.api_key or (_key(config) if own else "")
    model = native.model or (_model(config, preset) if own else "")
    if not model:
        raise AgentUnavailableError("the native agent has no model: set native.model")
    if preset.needs_key and not key:
        key_name = _key_name(native.preset) if own else "native.apiKey"
        raise AgentUnavailableError(f"the native agent has no key: run `codebutler config set {key_name}`")
    endpoint = Endpoint(base_url, model, key, preset.replay_reasoning, preset.answer_tokens)
    return Target(endpoint, native.context_tokens or preset.context)


def _base_url(config: Config, preset: Preset) -> str:
    match config.native.preset:
        case "kimi":
            return config.kimi.base_url
        case "openai":
            return config.openai.base_url
    return preset.base_url


def _key(config: Config) -> str:
    """A key goes only where its owner meant it to go."""
    return {KIMI: config.kimi.api_key, OPENAI: config.openai.api_key}.get(config.native.preset, "")


def _model(config: Config, preset: Preset) -> str:
    return (config.kimi.model if config.native.preset == KIMI else "") or preset.model


def _key_name(preset: str) -> str:
    return {KIMI: "kimi.apiKey", OPENAI: "openai.apiKey"}.get(preset, "native.apiKey")

"""Which model keeps the memory: the one that somebody gave a key for. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

from codebutler.config.schema import Config
from codebutler.domain.errors import AgentUnavailableError
from codebutler.protocol.findings import Finding, ok
from codebutler_worker.agents.native.model import KIMI, PRESETS, Endpoint, target


def memory_endpoint(config: Config) -> Endpoint | None:
    """Kimi if it has a key, else the native agent's model if that is set up; None switches the memory off.

    ``openai.apiKey`` alone is for speech and pictures: nobody agreed to more with it.
    """
    try:
        return _endpoint(config)
    except AgentUnavailableError:
        return None


def memory_finding(config: Config) -> Finding:
    """For `codebutler doctor`: which model learns, or why none does. The memory is told to agents either way."""
    if config.memory.review == "off":
        return ok("memory", "off", "nothing is learned by itself: memory.review is off")
    try:
        endpoint = _endpoint(config)
    except AgentUnavailableError as error:
        return ok("memory", "off", f"nothing is learned by itself: {error}")
    asks = ", and asks before it is kept" if config.memory.review == "ask" else ""
    where = urlsplit(endpoint.base_url).hostname or endpoint.base_url
    return ok("memory", endpoint.model, f"learns at the end of conversations, at {where}{asks}")


def _endpoint(config: Config) -> Endpoint:
    """Raises AgentUnavailableError with what is missing."""
    kimi = config.kimi
    if kimi.api_key:
        return Endpoint(kimi.base_url, kimi.model or PRESETS[KIMI].model, kimi.api_key)
    return target(config)

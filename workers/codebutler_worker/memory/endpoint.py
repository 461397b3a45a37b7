"""Which model keeps the memory: the one that somebody gave a key for. Pure."""

from __future__ import annotations

from codebutler.config.schema import Config
from codebutler.errors import AgentUnavailableError
from codebutler_worker.agents.native.presets import KIMI, PRESETS, target
from codebutler_worker.agents.native.service import Endpoint


def memory_endpoint(config: Config) -> Endpoint | None:
    """Kimi if it has a key, else the native agent's model if that is set up; None switches the memory off.

    ``openai.apiKey`` alone is for speech and pictures: nobody agreed to more with it.
    """
    kimi = config.kimi
    if kimi.api_key:
        return Endpoint(kimi.base_url, kimi.model or PRESETS[KIMI].model, kimi.api_key)
    try:
        return target(config).endpoint
    except AgentUnavailableError:
        return None

"""Which model keeps the memory: the one that somebody gave a key for. Pure."""

from __future__ import annotations

from codebutler.config.schema import Config, NativeSection
from codebutler_worker.agents.native.service import Endpoint

KIMI_MODEL = "kimi-k2.6"
"""Moonshot's name for its general model; the ``preview`` and ``latest`` names were withdrawn in 2026."""


def memory_endpoint(config: Config) -> Endpoint | None:
    """Kimi if it has a key, else the native agent's service if it has one or stands on a machine of its own; None
    switches the memory off. ``openai.apiKey`` is for speech and pictures: nobody agreed to more with it."""
    kimi, native = config.kimi, config.native
    if kimi.api_key:
        return Endpoint(kimi.base_url, kimi.model or KIMI_MODEL, kimi.api_key)
    elsewhere = native.base_url != NativeSection().base_url
    if native.api_key or (elsewhere and native.model):
        return Endpoint(native.base_url, native.model or KIMI_MODEL, native.api_key)
    return None

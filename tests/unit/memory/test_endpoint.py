"""Which model keeps the memory, and when none does."""

from __future__ import annotations

import pytest

from codebutler.config.schema import Config, KimiSection, NativeSection, OpenAISection
from codebutler_worker.agents.native.service import Endpoint
from codebutler_worker.memory.endpoint import memory_endpoint

KIMI = KimiSection(api_key="k1")


@pytest.mark.parametrize(
    ("config", "endpoint"),
    [
        (Config(), None),
        (Config(openai=OpenAISection(api_key="o1")), None),
        (Config(native=NativeSection(model="x")), None),
        (Config(kimi=KIMI), Endpoint("https://api.moonshot.ai/v1", "kimi-k2.6", "k1")),
        (
            Config(kimi=KimiSection(api_key="k1", base_url="https://a/v1", model="m")),
            Endpoint("https://a/v1", "m", "k1"),
        ),
        (
            Config(kimi=KIMI, native=NativeSection(preset="groq", api_key="g1")),
            Endpoint("https://api.moonshot.ai/v1", "kimi-k2.6", "k1"),
        ),
        (
            Config(native=NativeSection(preset="groq", api_key="g1")),
            Endpoint("https://api.groq.com/openai/v1", "openai/gpt-oss-120b", "g1"),
        ),
        (
            Config(native=NativeSection(preset="ollama", model="llama")),
            Endpoint("http://127.0.0.1:11434/v1", "llama"),
        ),
    ],
)
def test_the_one_with_a_key_for_conversations(config: Config, endpoint: Endpoint | None) -> None:
    assert memory_endpoint(config) == endpoint

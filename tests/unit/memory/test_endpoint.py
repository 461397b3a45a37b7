"""Which model keeps the memory, and when none does."""

from __future__ import annotations

import pytest

from codebutler.config.schema import Config, KimiSection, MemorySection, NativeSection, OpenAISection
from codebutler_worker.agents.native.model import Endpoint
from codebutler_worker.memory.learning import memory_endpoint, memory_finding

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


@pytest.mark.parametrize(
    ("config", "subject", "words"),
    [
        (Config(), "off", "run `codebutler config set kimi.apiKey`"),
        (Config(kimi=KIMI, memory=MemorySection(review="off")), "off", "memory.review is off"),
        (Config(native=NativeSection(preset="ollama")), "off", "set native.model"),
        (Config(kimi=KIMI), "kimi-k2.6", "at api.moonshot.ai"),
        (
            Config(
                native=NativeSection(base_url="http://u:p4ssw0rd@localhost:1/v1", model="m"),
                memory=MemorySection(review="ask"),
            ),
            "m",
            "at localhost, and asks before",
        ),
    ],
)
def test_doctor_says_which_model_learns_or_why_none_does(config: Config, subject: str, words: str) -> None:
    found = memory_finding(config)
    assert (found.area, found.level, found.subject) == ("memory", "ok", subject)
    assert words in found.text
    assert "k1" not in found.text
    assert "p4ssw0rd" not in found.text

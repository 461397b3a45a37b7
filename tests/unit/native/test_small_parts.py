"""Prices, presets, permissions, what a terminal shows, and where its commands end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.config.schema import Config, KimiSection, NativeSection, OpenAISection, Price
from codebutler.domain.errors import AgentUnavailableError
from codebutler_worker.agents.native.acting import ruling
from codebutler_worker.agents.native.model import PRESETS, TokenCount, cost_usd, price_of, target
from codebutler_worker.tools.programs import HEAD_CHARS, TAIL_CHARS, shorten_output, strip_escapes
from codebutler_worker.tools.shell import Mark, MarkReader, command_lines


def test_cached_tokens_have_a_price_of_their_own_if_somebody_says_so() -> None:
    tokens = TokenCount(1_000_000, 500_000, 400_000)
    assert cost_usd(tokens, Price(input=1.0, output=4.0)) == 3.0
    assert cost_usd(tokens, Price(input=1.0, output=4.0, cached_input=0.5)) == pytest.approx(2.8)
    assert cost_usd(tokens, None) is None
    assert price_of({"a": Price(input=1, output=1)}, "b") is None


def config(native: dict[str, Any], **sections: Any) -> Config:
    return Config(native=NativeSection(**native), **sections)


def test_kimi_is_asked_with_its_own_key_unless_there_is_another() -> None:
    kimi = KimiSection(api_key="k", base_url="https://kimi.example/v1")
    found = target(config({}, kimi=kimi))
    assert (found.base_url, found.key) == ("https://kimi.example/v1", "k")
    assert (found.model, found.context) == (PRESETS["kimi"].model, PRESETS["kimi"].context)
    assert target(config({"api_key": "own"}, kimi=kimi)).key == "own"


def test_a_key_goes_nowhere_but_where_it_belongs() -> None:
    kimi, openai = KimiSection(api_key="k"), OpenAISection(api_key="o")
    elsewhere = target(
        config({"base_url": "https://else.example/v1", "model": "m"}, kimi=kimi, openai=openai)
    )
    assert elsewhere.key == ""
    assert (elsewhere.replay_reasoning, elsewhere.answer_tokens, elsewhere.context) == (
        False,
        None,
        64_000,
    )
    found = target(config({"preset": "openai", "model": "m"}, kimi=kimi, openai=openai))
    assert (found.key, found.base_url) == ("o", "https://api.openai.com/v1")
    assert "key=" not in repr(found)


@pytest.mark.parametrize(
    "native", [{}, {"preset": "groq"}, {"preset": "openai", "api_key": "k"}, {"preset": "ollama"}]
)
def test_what_is_missing_is_said(native: dict[str, Any]) -> None:
    with pytest.raises(AgentUnavailableError, match=r"set (kimi|native)\.(apiKey|model)"):
        target(config(native))


def test_ollama_needs_no_key() -> None:
    found = target(config({"preset": "ollama", "model": "m", "context_tokens": 9000}))
    assert (found.base_url, found.context) == ("http://127.0.0.1:11434/v1", 9000)


def test_looking_is_always_allowed_and_planning_changes_nothing() -> None:
    for mode in ("bypassPermissions", "acceptEdits", "ask", "plan"):
        assert ruling(mode, "read") == ruling(mode, "own") == "allow"
    assert [ruling("plan", kind) for kind in ("edit", "command", "web")] == ["refuse", "refuse", "ask"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("plain\n", "plain\n"),
        ("\x1b[1;31mred\x1b[0m \x1b]0;title\x07x", "red x"),
        ("10%\r50%\r100%\r\n", "100%\n"),
        ("abc\b\bX", "aX"),
        ("a\x00b\x07c\x1b", "abc"),
        ("tab\tstays", "tab\tstays"),
    ],
)
def test_what_a_terminal_would_show(raw: str, text: str) -> None:
    assert strip_escapes(raw) == text


@given(st.text(max_size=100_000))
def test_what_is_told_is_bounded(text: str) -> None:
    found, cut = shorten_output(text)
    assert len(found) <= HEAD_CHARS + TAIL_CHARS + 100
    assert cut == (len(strip_escapes(text).rstrip()) > HEAD_CHARS + TAIL_CHARS)


@given(st.lists(st.binary(max_size=30), max_size=5), st.data())
def test_marks_are_found_however_the_output_is_cut(outputs: list[bytes], data: st.DataObject) -> None:
    clean = [output.replace(b"\x1e", b"") for output in outputs]
    stream = b"".join(
        b"\x1eword %d begun \x1e%b\x1eword %d 3 /tmp\x1e" % (at, output, at)
        for at, output in enumerate(clean, 1)
    )
    listener, at = MarkReader("word"), 0
    while at < len(stream):
        piece = data.draw(st.integers(1, 20))
        listener.feed(stream[at : at + piece])
        at += piece
    assert listener.take() == (b"".join(clean).decode(errors="replace"), False)
    assert listener.mark == (Mark(len(clean), 3, "/tmp") if clean else None)
    assert listener.started_number == len(clean)


def test_another_word_is_no_mark() -> None:
    listener = MarkReader("word")
    listener.feed(b"a\x1eother 1 0 /\x1eb")
    assert listener.mark is None
    listener.feed(b"c" * 9000)
    assert listener.take()[0].startswith("a\x1eother 1 0 /\x1ebc")


@given(st.text(max_size=9000))
def test_no_line_for_the_shell_is_longer_than_a_terminal_takes(command: str) -> None:
    assert all(len(line) < 4095 for line in command_lines("0" * 16, 7, command).split(b"\n"))

"""Services as they are: what each of them answers, in shape, comes to the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from codebutler_worker.agents.native.model import (
    AssistantMessage,
    ModelError,
    ModelReply,
    ModelRequest,
    TokenCount,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from codebutler_worker.agents.native.service import EventDecoder, told
from codebutler_worker.agents.native.services import Dialect, alternated, learned, refusal
from codebutler_worker.agents.native.wire import END, Assembler, body

GOLDEN = Path(__file__).parents[2] / "golden" / "services"
PATHS = {"type": "object", "properties": {"paths": {"type": "array", "items": {"type": "string"}}}}
TOOLS = ({"type": "function", "function": {"name": "read_files", "parameters": PATHS}},)


def answer(name: str) -> ModelReply:
    """A whole stream as it comes, a few bytes at a time; what people see on the way has no marks of a format in it."""
    assembler, decoder = Assembler(TOOLS), EventDecoder()
    content = (GOLDEN / f"{name}.sse").read_bytes()
    for at in range(0, len(content), 11):
        for data in decoder.feed(content[at : at + 11]):
            if data != END:
                assembler.feed(data)
            assert not any(mark in assembler.text for mark in ("<t", "TOOL_CALLS", "The file first"))
    return assembler.reply()


@pytest.mark.parametrize(
    ("name", "call", "reasoning", "tokens"),
    [
        ("mistral", ToolCall("dnEN4JsJy", "", ""), "The file first.", TokenCount(310, 42)),
        ("mistral_text", ToolCall("", "", ""), "", TokenCount(310, 20)),
        ("deepseek", ToolCall("call_00_abc", "", ""), "The file first.", TokenCount(310, 42, 256)),
        ("llamacpp", ToolCall("", "", ""), "The file first.", TokenCount()),
        (
            "gemini",
            ToolCall("jm4owj31", "", "", '{"google":{"thought_signature":"EjQKMgEMOdbHJChLX75QUCJjyYlm"}}'),
            "",
            TokenCount(310, 42),
        ),
        ("vllm", ToolCall("chatcmpl-tool-1", "", ""), "The file first.", TokenCount(310, 42)),
    ],
)
def test_each_service_looks_at_the_file(
    name: str, call: ToolCall, reasoning: str, tokens: TokenCount
) -> None:
    reply = answer(name)
    assert reply.said.content == "I look at it."
    assert reply.said.reasoning == reasoning
    [made] = reply.said.calls
    assert (made.id, made.name, made.extra) == (call.id, "read_files", call.extra)
    assert json.loads(made.arguments) == {"paths": ["a.py"]}
    assert reply.tokens == tokens


def test_a_refusal_is_the_answer() -> None:
    assert answer("openai_refusal").said == AssistantMessage("I can't help with that.")


@pytest.mark.parametrize(
    "case", json.loads((GOLDEN / "errors.json").read_text()), ids=lambda case: case["source"]
)
def test_each_service_says_why_it_refuses(case: dict[str, Any]) -> None:
    code, said, words = told(json.dumps(case["body"]).encode())
    error = refusal(case["status"], code, said, None, words)
    assert (error.trouble, error.context) == (case["trouble"], case["context"])
    assert "\n" not in str(error)


def test_a_refusal_in_the_middle_of_a_stream_is_one() -> None:
    case = json.loads((GOLDEN / "errors.json").read_text())[0]
    with pytest.raises(ModelError) as caught:
        Assembler().feed(json.dumps(case["body"]))
    assert (caught.value.trouble, caught.value.context) == ("too_long", 256)


def test_no_room_for_a_single_word_is_too_long() -> None:
    assembler = Assembler()
    assembler.feed('{"choices": [{"delta": {"content": ""}, "finish_reason": "length"}]}')
    with pytest.raises(ModelError) as caught:
        assembler.reply()
    assert caught.value.trouble == "too_long"


DEEPSEEK = "The reasoning_content in the thinking mode must be passed back to the API."
MOONSHOT = "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2"
GROQ = "'messages.2' : for 'role:assistant' ... property 'reasoning_content' is unsupported"
MISTRAL = '{"detail":[{"type":"extra_forbidden","loc":["body","max_completion_tokens"],"input":32000}]}'
ORDER = "Unexpected role 'user' after role 'tool' (invalid_request_message_order)"


@pytest.mark.parametrize(
    ("dialect", "said", "better"),
    [
        (Dialect(), DEEPSEEK, Dialect("always")),
        (Dialect("own"), MOONSHOT, Dialect("always")),
        (Dialect("always"), MOONSHOT, None),
        (Dialect("own"), GROQ, Dialect("never")),
        (Dialect(), MISTRAL, Dialect(without=frozenset({"max_completion_tokens"}))),
        (Dialect(), ORDER, Dialect(alternating=True)),
        (Dialect(), "no such model", None),
        (Dialect(), "", None),
    ],
)
def test_a_refusal_teaches_how_to_ask(dialect: Dialect, said: str, better: Dialect | None) -> None:
    assert learned(dialect, said) == better


def test_a_request_is_spelled_as_the_service_wants_it() -> None:
    signed = ToolCall("c1", "look", "{}", '{"google":{"thought_signature":"s"}}')
    prompt = ModelRequest(
        (
            UserMessage("go"),
            AssistantMessage("", (signed,)),
            ToolMessage("c1", "seen"),
            UserMessage("and"),
            UserMessage("so on"),
        )
    )
    plain = json.loads(body("m", prompt, Dialect(), 100))
    assert plain["messages"][1]["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "s"}}
    assert plain["max_completion_tokens"] == 100
    assert "reasoning_content" not in plain["messages"][1]
    without = frozenset({"extra_content", "max_completion_tokens", "stream_options"})
    other = json.loads(body("m", prompt, Dialect("always", without, alternating=True), 100))
    assert other["max_tokens"] == 100
    assert {"max_completion_tokens", "stream_options"}.isdisjoint(other)
    assert "extra_content" not in other["messages"][1]["tool_calls"][0]
    # An empty one counts as missing with Moonshot.
    assert other["messages"][1]["reasoning_content"] == " "
    assert [message["role"] for message in other["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert other["messages"][-1]["content"] == "and\n\nso on"


def test_who_alternates_already_stays_as_it_is() -> None:
    messages = (
        UserMessage("go"),
        AssistantMessage("", (ToolCall("c", "x", "{}"),)),
        ToolMessage("c", "y"),
        AssistantMessage("Done."),
        UserMessage("more"),
    )
    assert alternated(messages) == list(messages)

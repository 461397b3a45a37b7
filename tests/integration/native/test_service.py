"""The model over HTTP: what is sent, what may come back, and what becomes of trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import Refusal, Writing
from codebutler_worker.agents.native.model import (
    AssistantMessage,
    Endpoint,
    ModelError,
    ModelReply,
    ModelRequest,
    SystemMessage,
    TokenCount,
    ToolCall,
    ToolMessage,
    UserMessage,
    complete,
)
from codebutler_worker.agents.native.service import HttpTimeouts, OpenAIModel
from tests.modelserver.chat import events
from tests.modelserver.completions import CompletionsServer
from tests.modelserver.server import Call as Calls
from tests.modelserver.server import Reply as Line

KEY = "sk-very-secret"
PROMPT = ModelRequest((SystemMessage("Be brief."), UserMessage("hello")))


@pytest.fixture
async def server() -> AsyncIterator[CompletionsServer]:
    async with CompletionsServer() as found:
        yield found


@pytest.fixture
async def model(server: CompletionsServer) -> AsyncIterator[OpenAIModel]:
    made = OpenAIModel(Endpoint(server.base_url, "kimi", KEY), SystemClock(), chance=lambda: 0.0)
    yield made
    await made.close()


async def test_the_request_is_what_the_api_wants(server: CompletionsServer, model: OpenAIModel) -> None:
    tools = ({"type": "function", "function": {"name": "look"}},)
    said = AssistantMessage("I look.", (ToolCall("c1", "look", "{}"),), "secret thoughts")
    server.play(Line("Done."))
    await complete(model, ModelRequest((*PROMPT.messages, said, ToolMessage("c1", "seen")), tools))
    assert server.keys == [KEY]
    body = server.requests[0]
    assert (body["model"], body["stream"], body["stream_options"]) == ("kimi", True, {"include_usage": True})
    assert body["tools"] == list(tools)
    assert "max_completion_tokens" not in body
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
    ]


async def test_a_longer_conversation_begins_with_the_very_same_bytes(
    server: CompletionsServer, model: OpenAIModel
) -> None:
    await complete(model, PROMPT)
    await complete(model, ModelRequest((*PROMPT.messages, AssistantMessage("Hi."), UserMessage("and now?"))))
    first, second = server.raw
    assert second.startswith(first.removesuffix(b"]}"))


async def test_reasoning_goes_back_to_those_who_want_it(server: CompletionsServer) -> None:
    endpoint = Endpoint(server.base_url, "kimi", KEY, replay_reasoning=True, answer_tokens=32_000)
    model = OpenAIModel(endpoint, SystemClock())
    await complete(
        model, ModelRequest((*PROMPT.messages, AssistantMessage("Hi.", (), "thoughts"), UserMessage("more")))
    )
    assert server.requests[0]["messages"][2]["reasoning_content"] == "thoughts"
    assert server.requests[0]["max_completion_tokens"] == 32_000
    await model.close()


@pytest.mark.parametrize("chunk_bytes", [0, 1, 7])
async def test_parallel_calls_split_anywhere_come_together(
    server: CompletionsServer, model: OpenAIModel, chunk_bytes: int
) -> None:
    server.chunk_bytes, server.piece = chunk_bytes, 5
    calls = (Calls("read", {"paths": ["ä b.py", "c\n"]}), Calls("write", {"path": "ü", "content": "x" * 40}))
    server.play(Line("Först läsa.", calls, input_tokens=11, output_tokens=22))
    reply = await complete(model, PROMPT)
    assert reply.said.content == "Först läsa."
    assert [call.name for call in reply.said.calls] == ["read", "write"]
    assert '"x' not in reply.said.calls[0].arguments
    assert reply.said.calls[1].arguments.endswith('x"}')
    assert reply.tokens == TokenCount(11, 22)


def _kimi(reply: Line, piece: int) -> Sequence[dict[str, Any]]:
    delta = {"reasoning_content": "hm", "content": reply.text}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "cached_tokens": 5}
    return [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "length", "usage": usage}]},
    ]


def _careless(reply: Line, piece: int) -> Sequence[dict[str, Any]]:
    """Each call whole, all at index 0 or at none, one without an id."""
    parts = [
        {"index": 0, "id": "a", "function": {"name": "one", "arguments": "{}"}},
        {"index": 0, "id": "b", "function": {"name": "two", "arguments": '{"x":'}},
        {"function": {"arguments": "1}"}},
    ]
    found = [{"choices": [{"delta": {"tool_calls": [part]}}]} for part in parts]
    return [*found, {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}]


async def test_dialects_are_understood(server: CompletionsServer, model: OpenAIModel) -> None:
    server.spell = _kimi
    server.play(Line("Well"))
    assert await complete(model, PROMPT) == ModelReply(
        AssistantMessage("Well", (), "hm"), TokenCount(9, 4, 5), cut=True
    )
    server.spell = _careless
    reply = await complete(model, PROMPT)
    assert reply.said.calls == (ToolCall("a", "one", "{}"), ToolCall("b", "two", '{"x":1}'))


@pytest.mark.parametrize(
    ("status", "error", "trouble"),
    [
        (401, "bad key", "auth"),
        (402, "no money", "quota"),
        (429, "You exceeded: insufficient_quota", "quota"),
        (404, "no such model", "refused"),
        (400, "This model's maximum context length is 10 tokens", "too_long"),
        (400, "bad", "refused"),
    ],
)
async def test_what_would_be_refused_again_is_not_sent_again(
    server: CompletionsServer, model: OpenAIModel, status: int, error: str, trouble: str
) -> None:
    server.play(Line(status=status, error=f"{error} {KEY}\nmore"))
    with pytest.raises(ModelError, match=r"^[^\n]+$") as caught:
        await complete(model, PROMPT)
    assert caught.value.trouble == trouble
    assert KEY not in str(caught.value)
    assert len(server.requests) == 1


async def test_a_service_is_asked_in_the_way_that_it_wants(
    server: CompletionsServer, model: OpenAIModel
) -> None:
    """As DeepSeek refuses; what it taught is known from then on."""
    missing = "The `reasoning_content` in the thinking mode must be passed back to the API."
    server.play(Line(status=400, error=missing), Line("Fine."), Line("Fine again."))
    said = AssistantMessage("", (ToolCall("c1", "look", "{}"),), "thoughts")
    prompt = ModelRequest((*PROMPT.messages, said, ToolMessage("c1", "seen")))
    for text in ("Fine.", "Fine again."):
        assert (await complete(model, prompt)).said.content == text
    assert [request["messages"][2].get("reasoning_content") for request in server.requests] == [
        None,
        "thoughts",
        "thoughts",
    ]


async def test_a_service_that_is_never_content_is_given_up(
    server: CompletionsServer, model: OpenAIModel
) -> None:
    moods = ["reasoning_content must be passed back", "reasoning_content is unsupported"] * 9
    server.play(*(Line(status=400, error=mood) for mood in moods))
    with pytest.raises(ModelError, match="reasoning_content"):
        await complete(model, PROMPT)
    assert len(server.requests) <= 8


async def test_a_busy_service_is_asked_again_when_it_says(
    server: CompletionsServer, model: OpenAIModel
) -> None:
    server.play(
        Line(status=429, error="slow down", headers=(("retry-after", "0"),)),
        Line(status=503, error="oops", headers=(("retry-after-ms", "1"),)),
        Line("At last."),
    )
    events = [event async for event in model.ask(PROMPT)]
    assert [type(event) for event in events] == [Refusal, Refusal, Writing, ModelReply]
    assert isinstance(events[0], Refusal)
    assert events[0].text == "the model service is at its limit: slow down; retrying in 0 s"


async def test_a_service_that_wants_more_patience_than_we_have_gets_it_elsewhere(
    server: CompletionsServer, model: OpenAIModel
) -> None:
    server.play(Line(status=429, headers=(("retry-after", "3600"),)))
    with pytest.raises(ModelError) as caught:
        await complete(model, PROMPT)
    assert (caught.value.trouble, caught.value.retry_after_s) == ("limit", 3600)
    assert len(server.requests) == 1


async def test_an_answer_is_told_while_it_comes(server: CompletionsServer, model: OpenAIModel) -> None:
    server.spell = lambda reply, piece: events(reply, piece)[1:]
    server.play(Line("One two three four, five six seven.", hold=True))
    seen: list[object] = []
    async with asyncio.timeout(30):
        async for event in model.ask(PROMPT):
            if not seen:
                # The service is in the middle of its answer.
                assert event == Writing("One two three four, ")
                server.release.set()
            seen.append(event)
    assert isinstance(seen[-1], ModelReply)
    assert seen[-1].said.content == "One two three four, five six seven."


async def test_an_answer_that_breaks_off_begins_anew(server: CompletionsServer, model: OpenAIModel) -> None:
    broken = [*events(Line("Half of it."), 12)[1:2], {"error": {"message": "engine died"}}]
    server.spell = lambda reply, piece: events(reply, piece) if reply.text else broken
    server.play(Line(), Line("All of it."))
    async with asyncio.timeout(30):
        seen = [event async for event in model.ask(PROMPT)]
    assert [type(event) for event in seen] == [Writing, Refusal, Writing, ModelReply]
    assert (seen[0], seen[2]) == (Writing("Half of it."), Writing("All of it."))


async def test_a_silent_service_is_given_up(server: CompletionsServer) -> None:
    patience = HttpTimeouts(silence_s=1.0)
    model = OpenAIModel(Endpoint(server.base_url, "m"), SystemClock(), patience=patience, chance=lambda: 0.0)
    server.play(Line("never", hold=True), Line("then"))
    events = [event async for event in model.ask(PROMPT)]
    assert isinstance(events[0], Refusal)
    assert "did not answer in time" in events[0].text
    assert isinstance(events[-1], ModelReply)
    await model.close()


async def test_leaving_cancels_the_request(server: CompletionsServer, model: OpenAIModel) -> None:
    server.play(Line("never", hold=True))
    asking = asyncio.create_task(complete(model, PROMPT))
    await server.seen(1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    server.release.set()
    await server.abandoned()


async def test_an_unreachable_service_is_said_in_one_line(server: CompletionsServer) -> None:
    model = OpenAIModel(Endpoint("http://127.0.0.1:9/v1", "m", KEY), _Hurry(), chance=lambda: 0.0)
    with pytest.raises(ModelError, match=r"^the model service cannot be reached \(ConnectError\)") as caught:
        await complete(model, PROMPT)
    assert KEY not in str(caught.value)
    await model.close()


@pytest.mark.parametrize(
    ("key", "proxy"), [(f"{KEY}\u200b", ""), (KEY, "proxy:3128"), (KEY, "socks5://127.0.0.1:9")]
)
async def test_what_cannot_be_used_is_said_without_the_key(key: str, proxy: str) -> None:
    model = OpenAIModel(Endpoint("http://192.0.2.1/v1", "m", key), _Hurry(), {"HTTP_PROXY": proxy})
    with pytest.raises(ModelError, match=r"native.apiKey.*HTTPS_PROXY") as caught:
        await complete(model, PROMPT)
    assert KEY not in str(caught.value)


class _Hurry(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

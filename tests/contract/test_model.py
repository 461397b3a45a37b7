"""What every Model promises: the scripted one, and the real one over a service of the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

import pytest

from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import Refusal, Thinking, Writing
from codebutler_worker.agents.native.model import (
    AssistantMessage,
    Endpoint,
    Model,
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
from codebutler_worker.agents.native.service import OpenAIModel
from tests.modelserver import server as script
from tests.modelserver.completions import CompletionsServer
from tests.scriptedmodel import ScriptedModel

PROMPT = ModelRequest((SystemMessage("Be brief."), UserMessage("hello")))


class Rig(Protocol):
    """A model, and how to tell it what to answer."""

    @property
    def model(self) -> Model: ...

    def play(self, reply: script.Reply) -> None: ...


@dataclass
class ScriptedRig:
    model: ScriptedModel

    def play(self, reply: script.Reply) -> None:
        if reply.status != 200:
            self.model.play(ModelError("auth", "the key is refused: check native.apiKey"))
            return
        calls = tuple(
            ToolCall(f"{call.name}:{at}", call.name, '{"path": "a"}') for at, call in enumerate(reply.calls)
        )
        tokens = TokenCount(reply.input_tokens, reply.output_tokens)
        self.model.play(ModelReply(AssistantMessage(reply.text, calls, reply.thoughts), tokens))


@dataclass
class ServiceRig:
    model: OpenAIModel
    server: CompletionsServer

    def play(self, reply: script.Reply) -> None:
        self.server.play(reply)


@pytest.fixture(params=["scripted", "service"])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    if request.param == "scripted":
        yield ScriptedRig(ScriptedModel())
        return
    async with CompletionsServer() as server:
        model = OpenAIModel(Endpoint(server.base_url, "m", "key"), SystemClock())
        yield ServiceRig(model, server)
        await model.close()


async def test_an_answer_comes_whole_with_what_it_used(rig: Rig) -> None:
    rig.play(script.Reply("Hello to you, whoever you are.", input_tokens=7, output_tokens=3))
    reply = await complete(rig.model, PROMPT)
    assert reply == ModelReply(AssistantMessage("Hello to you, whoever you are."), TokenCount(7, 3))


async def test_calls_come_whole_and_in_order(rig: Rig) -> None:
    rig.play(script.Reply("", (script.Call("one", {"path": "a"}), script.Call("two", {"path": "a"}))))
    reply = await complete(rig.model, PROMPT)
    assert [(call.name, call.arguments) for call in reply.said.calls] == [
        ("one", '{"path": "a"}'),
        ("two", '{"path": "a"}'),
    ]
    assert len({call.id for call in reply.said.calls}) == 2


async def test_it_ends_with_exactly_one_reply(rig: Rig) -> None:
    rig.play(script.Reply("one"))
    async with asyncio.timeout(30):
        events = [event async for event in rig.model.ask(PROMPT)]
    assert [type(event) for event in events if not isinstance(event, Refusal | Writing | Thinking)] == [
        ModelReply
    ]
    assert isinstance(events[-1], ModelReply)


async def test_what_there_is_before_the_end_is_how_the_answer_begins(rig: Rig) -> None:
    text = "A sentence that takes its time to be written."
    rig.play(script.Reply(text))
    async with asyncio.timeout(30):
        events = [event async for event in rig.model.ask(PROMPT)]
    begun = [event.text for event in events if isinstance(event, Writing)]
    assert begun
    assert all(each and text.startswith(each) for each in begun)
    assert begun == sorted(begun, key=len)


async def test_that_it_reasons_is_told_before_what_it_says(rig: Rig) -> None:
    rig.play(script.Reply("Done.", thoughts="Let me see."))
    async with asyncio.timeout(30):
        events = [event async for event in rig.model.ask(PROMPT)]
    assert events[0] == Thinking("")
    assert isinstance(events[-1], ModelReply)
    assert events[-1].said.reasoning == "Let me see."


async def test_a_conversation_with_results_can_go_on(rig: Rig) -> None:
    rig.play(script.Reply("Done."))
    said = AssistantMessage("I look.", (ToolCall("c1", "look", "{}"),), "thinking")
    reply = await complete(rig.model, ModelRequest((*PROMPT.messages, said, ToolMessage("c1", "seen"))))
    assert reply.said.content == "Done."


async def test_what_cannot_be_answered_is_one_line(rig: Rig) -> None:
    rig.play(script.Reply(status=401, error="bad\nkey"))
    with pytest.raises(ModelError, match=r"^[^\n]+: check native.apiKey$") as caught:
        await complete(rig.model, PROMPT)
    assert caught.value.trouble == "auth"


async def test_it_answers_again_after_it_was_closed(rig: Rig) -> None:
    for _ in range(2):
        rig.play(script.Reply("Here."))
        assert (await complete(rig.model, PROMPT)).said.content == "Here."
        await rig.model.close()

"""A whole turn against each service, over HTTP: its answer in shape, the tool it calls, and what it is told of that."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.native.model import Endpoint
from codebutler_worker.agents.native.service import OpenAIModel
from tests.integration.native.conftest import Studio
from tests.modelserver.chat import events
from tests.modelserver.completions import CompletionsServer
from tests.modelserver.script import Reply
from tests.turns import end

GOLDEN = Path(__file__).parents[2] / "golden" / "services"


def spoken(name: str) -> list[dict[str, Any]]:
    """The events of a golden answer."""
    lines = (GOLDEN / f"{name}.sse").read_text().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


@pytest.mark.parametrize("name", ["mistral", "mistral_text", "deepseek", "llamacpp", "gemini", "vllm"])
async def test_each_service_has_its_call_done(studio: Studio, name: str) -> None:
    (studio.repo / "a.py").write_text("print('here')\n")

    def spell(reply: Reply, piece: int) -> Sequence[dict[str, Any]]:
        return spoken(name) if reply.text == name else events(reply, piece)

    async with CompletionsServer(spell=spell) as server:
        studio.model = OpenAIModel(Endpoint(server.base_url, "m"), SystemClock())  # type: ignore[assignment]  # the real one in a scripted one's place
        server.play(Reply(name), Reply("It prints."))
        finished = end([event async for event in studio.agent().start(studio.request("what does it do?"))])
        assert (finished.ok, finished.text) == (True, "It prints.")
        *_, said, told = server.requests[1]["messages"]
        [call] = said["tool_calls"]
        assert (said["content"], call["function"]["name"]) == ("I look at it.", "read_files")
        assert told["tool_call_id"] == call["id"]
        assert "print('here')" in told["content"]
        assert ("extra_content" in call) == (name == "gemini")
        # One that the service gave no id has one that Mistral takes, too.
        assert name not in ("mistral_text", "llamacpp") or re.fullmatch("[a-z0-9]{9}", call["id"])
        await studio.agent().close()

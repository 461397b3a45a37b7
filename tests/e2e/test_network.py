"""What an agent reaches in the product as people run it.

| case | what happens |
|---|---|
| N01 | Claude Code reaches its model with a key that it does not hold, and no service of this machine; `run:` does |
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.e2e.house import house, whole_text
from tests.e2e.test_matrix import claude, model_env
from tests.modelserver.server import Call, ModelServer, Reply
from tests.programs import require


async def test_n01_an_agent_reaches_its_model_and_a_person_everything(tmp_path: Path, git_repo: Path) -> None:
    require("curl")
    visitors = 0

    async def private(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visitors
        visitors += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nprivate pages")
        writer.close()

    service = await asyncio.start_server(private, "127.0.0.1", 0)
    url = f"http://localhost:{service.sockets[0].getsockname()[1]}/"
    async with (
        service,
        ModelServer() as model,
        house(tmp_path, "sample", extra_env=model_env(model)) as built,
    ):
        channel = await claude(built, git_repo)
        look = f"(curl -sS {url}; curl -sS --noproxy '' {url}; env) > seen.txt 2>&1"
        model.play(
            Reply("", (Call("Bash", {"command": look, "description": "look"}),)), Reply("That is all.")
        )
        ts = await built.say(channel, "look around")
        await built.answer(channel, ts, "That is all.")
        seen = (git_repo / "seen.txt").read_text()
        assert "does not let this agent reach localhost:" in seen
        assert "private pages" not in seen
        assert visitors == 0
        real = model_env(model)
        assert set(model.keys) == {real["ANTHROPIC_API_KEY"]}
        assert not [value for value in real.values() if value in seen]
        assert "access to localhost:" in built.log()

        ts = await built.say(channel, f"run: curl -sS {url}")
        told = await built.answer(channel, ts, "private pages")
        assert whole_text(told)
        assert visitors == 1

"""The tutorial, step by step, against `codebutler demo` as its reader starts it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from tests.e2e.house import DEADLINE_S, FINAL, command, whole_text
from tests.programs import require
from tests.screen import CTRL_D, ENTER, screen

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "first-answer.md"


class Reader:
    """Somebody with the demo's page open; everything goes over the Web API, as from any Slack client."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told
        self.slack = AsyncWebClient(str(told["url"]).partition("token=")[2], base_url=told["api_url"])
        self.slack.proxy = None
        self.channel = ""

    async def writes(self, text: str, thread_ts: str | None = None) -> tuple[str, str]:
        """Write and wait for the outcome; returns the message's ts and all that was said to it."""
        if not self.channel:
            self.channel = (await self.slack.conversations_list())["channels"][0]["id"]
        sent = await self.slack.chat_postMessage(channel=self.channel, text=text, thread_ts=thread_ts)
        ts, root = str(sent["ts"]), thread_ts or str(sent["ts"])
        async with asyncio.timeout(DEADLINE_S):
            while True:
                replies = (await self.slack.conversations_replies(channel=self.channel, ts=root))["messages"]
                said = "\n".join(whole_text(m) for m in replies if m.get("bot_id") and m["ts"] > ts)
                mine = next(m for m in replies if m["ts"] == ts)
                reactions = {reaction["name"] for reaction in mine.get("reactions", [])}
                if said and (reactions & FINAL or text.startswith("!")):
                    assert not reactions & {"x", "octagonal_sign"}, said
                    return ts, said
                await asyncio.sleep(0.1)  # asked as a client asks


@asynccontextmanager
async def demo(**more: str) -> AsyncIterator[Reader]:
    """The demo, in a place of its own whose path is short enough for a socket. ``more``: of its environment."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o711)  # as /tmp is
        async with _demo(place, more) as reader:
            yield reader
        assert not (Path(place) / "own").exists()


@asynccontextmanager
async def _demo(place: str, more: dict[str, str]) -> AsyncIterator[Reader]:
    env = {**os.environ, "TMPDIR": place, "HOME": place, "CODEBUTLER_HOME": f"{place}/own", **more}
    arguments = command("demo", "--no-browser", "--json")
    process = await asyncio.create_subprocess_exec(
        *arguments, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            told = json.loads(await process.stdout.readline())
        yield Reader(told)
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        async with asyncio.timeout(DEADLINE_S):
            assert await process.wait() == 0


async def test_every_step_of_the_tutorial_does_what_it_says() -> None:
    require("bwrap")
    asked = re.findall(r"\*\*([^*]+)\*\*", TUTORIAL.read_text())
    assert len(asked) >= 8
    listing, reading, replacing, status, helping, running, listing_again, remembering = asked[:8]
    async with demo() as reader:
        repo = Path(reader.told["path"])
        assert reader.told["dashboard"].startswith("http://127.0.0.1:")
        root, said = await reader.writes(listing)
        assert "greet.py" in said
        _, said = await reader.writes(reading, root)
        assert "A small repository" in said
        before = (repo / "README.md").read_text()
        _, said = await reader.writes(replacing, root)
        assert (repo / "README.md").read_text() != before, said
        _, said = await reader.writes(status)
        assert "README.md" in said
        _, said = await reader.writes(helping)
        assert "!stop" in said
        _, said = await reader.writes(running)
        assert "running" in said
        said = await chatted(reader, {listing_again: "tokens:", remembering: "Before this you said"})
        assert f"│ {listing_again}" in said
    assert not repo.exists()
    assert not Path(reader.told["home"]).exists()


async def chatted(reader: Reader, texts: Mapping[str, str]) -> str:
    """The screen of a terminal beside the demo once each text has its expected answer."""
    env = {**os.environ, "TERM": "xterm-256color", "CODEBUTLER_HOME": reader.told["home"]}
    async with screen(command("chat"), env) as shown:
        await shown.ready()
        for text, answer in texts.items():
            shown.type(text + ENTER)
            await shown.until(answer)
        shown.type(CTRL_D)
        assert await shown.ended() == 0
        return shown.text


async def test_without_bubblewrap_the_offline_agent_works_too_and_never_as_root(tmp_path: Path) -> None:
    (tmp_path / "git").symlink_to(require("git"))
    async with demo(PATH=str(tmp_path)) as reader:
        assert not reader.told["sandboxed"]
        root, said = await reader.writes("create hello.txt with Hello!")
        assert (made := Path(reader.told["path"]) / "hello.txt").read_text() == "Hello!\n", said
        assert made.stat().st_uid != 0
        _, said = await reader.writes("list the files", root)
        assert "hello.txt" in said

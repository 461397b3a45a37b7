"""`codebutler workspace`: the stand-in for Slack that other bots are pointed at."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio import subprocess

from slack_sdk.web.async_client import AsyncWebClient

from tests.e2e.house import DEADLINE_S, command

OPTIONS = ["--channel", "harbour", "--user", "ada", "--bot", "robo", "--command", "ship"]


async def test_a_workspace_with_guests_channels_and_commands() -> None:
    argv = command("workspace", "--json", *OPTIONS)
    process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            told = json.loads(await process.stdout.readline())
        assert sorted(told["users"]) == ["ada", "robo"]
        bot = client(told, told["users"]["robo"]["token"])
        assert (await bot.auth_test())["bot_id"]
        ada = client(told, told["users"]["ada"]["token"])
        assert [one["name"] for one in (await ada.conversations_list())["channels"]] == ["harbour"]
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            assert await process.wait() == 0


async def test_a_name_that_is_none_is_one_clear_line() -> None:
    argv = command("workspace", "--user", "you")
    process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    async with asyncio.timeout(DEADLINE_S):
        output, _ = await process.communicate()
    assert process.returncode == 1
    assert output.decode().splitlines() == [
        "codebutler: 'you' is there already: give letters and digits, each name once"
    ]


def client(told: dict[str, str], token: str) -> AsyncWebClient:
    made = AsyncWebClient(token, base_url=told["api_url"])
    made.proxy = None
    return made

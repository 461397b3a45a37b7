"""`codebutler workspace`: the stand-in for Slack that other bots are pointed at."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio import subprocess
from pathlib import Path

import httpx
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from tests.e2e.house import DEADLINE_S, command

OPTIONS = ["--channel", "harbour", "--user", "ada", "--bot", "robo"]
MANIFEST = """
features:
  slash_commands: [{command: /ship, description: Sails}]
  shortcuts: [{name: Report it, type: message, callback_id: report, description: x}]
"""


async def test_a_workspace_with_guests_channels_and_commands(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(MANIFEST)
    argv = command("workspace", "--json", *OPTIONS, "--manifest", str(manifest))
    process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            told = json.loads(await process.stdout.readline())
        assert sorted(told["users"]) == ["ada", "robo"]
        bot = client(told, told["users"]["robo"]["token"])
        assert (await bot.auth_test())["bot_id"]
        headers = {"Authorization": f"Bearer {told['user_token']}"}
        async with httpx.AsyncClient(trust_env=False, headers=headers) as page:
            boot = (await page.get(told["url"].split("/#")[0] + "/workspace/boot")).json()
        assert [one["command"] for one in boot["commands"]] == ["/ship"]
        assert boot["shortcuts"] == [{"callback_id": "report", "name": "Report it", "on_message": True}]
        ada = client(told, told["users"]["ada"]["token"])
        assert [one["name"] for one in (await ada.conversations_list())["channels"]] == ["harbour"]
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            assert await process.wait() == 0


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--user", "you"], "'you' already exists: use letters and digits, each name once"),
        (["--manifest", "/nowhere"], "cannot read /nowhere: No such file or directory"),
        (["--manifest", "bad"], "not an app manifest (no `features`)"),
    ],
)
async def test_what_cannot_be_is_one_clear_line(tmp_path: Path, options: list[str], line: str) -> None:
    (tmp_path / "bad").write_text("{}")
    argv = command("workspace", *[str(tmp_path / one) if one == "bad" else one for one in options])
    process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    async with asyncio.timeout(DEADLINE_S):
        output, _ = await process.communicate()
    assert process.returncode == 1
    (said,) = output.decode().splitlines()
    assert said.startswith(f"codebutler: {line}")


def client(told: dict[str, str], token: str) -> AsyncWebClient:
    made = AsyncWebClient(token, base_url=told["api_url"])
    made.proxy = None
    return made

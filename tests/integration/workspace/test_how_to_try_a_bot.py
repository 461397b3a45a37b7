"""The bot of the how-to page, run as it stands there, against the workspace as it is started there."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio import subprocess
from pathlib import Path
from textwrap import dedent

from codebutler.workspace.server import WorkspaceServer

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "try-a-slack-bot.md"


def the_bot() -> str:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    return dedent(found[1])


async def test_the_bot_of_the_page_works(server: WorkspaceServer, tmp_path: Path) -> None:
    (tmp_path / "bot.py").write_text(the_bot())
    env = {
        "PATH": os.environ["PATH"],
        "SLACK_BOT_TOKEN": server.bot_token,
        "SLACK_APP_TOKEN": server.app_token,
        "SLACK_API_URL": server.api_url,
    }
    bot = await asyncio.create_subprocess_exec(
        sys.executable, str(tmp_path / "bot.py"), env=env, stdout=subprocess.DEVNULL
    )
    try:
        await server.until(lambda: len(server.hub.connections) == 1, 30)
        you, channel = server.workspace.person, server.channel_id("demo")
        await server.interactions.slash(you, {"channel": channel, "command": "/deploy", "text": ""})
        view = (await server.until(lambda: server.dialogs.views_of(you)["modals"]))[0]
        values = {"why": {"text": "it is time"}}
        assert await server.dialogs.submit(you, {"view_id": view["id"], "values": values}) == {}
        said = server.workspace.channel(channel).messages
        await server.until(lambda: any(one.text == "Deploying: it is time" for one in said.values()))
    finally:
        bot.kill()
        await bot.wait()

"""The dashboard of the running product: a person sees in a browser what wants them, decides in Slack, sees it done.

A worker that sleeps is not woken by being looked at, and the page outlives a supervisor that is killed.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
from pathlib import Path

from playwright.async_api import expect

from tests.browser import PATIENCE_MS, page_at
from tests.e2e.house import House, house
from tests.e2e.test_approvals import LEAVE, card, model_env, touch
from tests.e2e.test_matrix import QUICK
from tests.modelserver.server import ModelServer, Reply
from tests.programs import require


async def served(built: House, repo: Path, sleeper: Path) -> str:
    """One repository whose agent asks before each command, and one whose worker sleeps; returns the first's channel."""
    require("bwrap")
    claude = {"binary": str(require("claude")), "permissionMode": "ask"}
    shutil.copytree(repo, sleeper)
    await built.add_repo(sleeper, "sleeper", agent=QUICK, worker={"idleSleepMinutes": 0.01})
    # Others on this machine may have the usual ports.
    config = built.home / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "dashboard": {"port": free_port()}}))
    channel = await built.add_repo(repo, "sample", agent={"debounceSeconds": 0}, claude=claude)
    await built.supervise()
    return channel


def free_port() -> int:
    """One that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def starts(built: House) -> int:
    """How often the sleeper's worker was started."""
    return built.log().count("[sleeper] the worker is running")


async def test_somebody_sees_what_wants_them_and_what_becomes_of_it(tmp_path: Path, git_repo: Path) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    async with (
        ModelServer() as model,
        house(tmp_path, "sample", "sleeper", extra_env=model_env(model) | {"LOG_LEVEL": "debug"}) as built,
    ):
        channel = await served(built, git_repo, tmp_path / "sleeper")
        opened = json.loads(await built.run("dashboard", "--json"))
        assert f"Dashboard: {opened['url']} " in built.log()
        assert f"{opened['url']} (" in await built.run("status")
        async with page_at(opened["link"]) as (page, _):
            asleep = page.locator("#repos tr", has_text="sleeper").get_by_text("sleeping")
            await expect(asleep).to_be_visible()
            await expect(page.locator("#verdict")).to_have_text("All is well")
            model.play(touch(git_repo), Reply("All done."))
            ts = await built.say(channel, "make a trace")
            await expect(page.locator("#verdict")).to_have_text("1 thing needs you")
            await expect(page.locator("#needs")).to_contain_text(f"touch {git_repo}/trace")
            await expect(page.locator("#needs")).to_contain_text("make a trace")
            place = re.escape(f"/archives/{channel}/p{ts.replace('.', '')}")
            await expect(page.locator("#needs a")).to_have_attribute("href", re.compile(place))
            assert await page.locator("main button").count() == 0
            message, value = await card(built, channel, ts)
            await built.click(channel, message["ts"], LEAVE, value)
            await expect(page.locator("#verdict")).to_have_text("All is well")
            await expect(page.locator("#needs")).to_contain_text("Nothing needs you.")
            await expect(page.locator("#lines")).to_contain_text("sample")
            await expect(asleep).to_be_visible()
            assert starts(built) == 1
            await built.stop(signal.SIGKILL)
            await expect(page.locator("#connection")).to_contain_text("Not connected since")
            await built.supervise()
            await expect(page.locator("#connection")).to_have_text("Live")
            shown = await page.content()
        key = (built.home / "dashboard.key").read_text().strip()
        for secret in (
            key,
            built.workspace.bot_token,
            built.workspace.app_token,
            model_env(model)["ANTHROPIC_API_KEY"],
        ):
            assert secret not in shown
            assert secret not in built.log()

"""The dashboard of the running product: a person sees in a browser what wants them, decides it there, sees it done.

A worker that sleeps is not woken by being looked at, and the page outlives a supervisor that is killed.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

from playwright.async_api import expect

from tests.browser import PATIENCE_MS, chromium, page_at
from tests.e2e.house import House, house
from tests.e2e.test_approvals import model_env, touch
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


def decision(built: House) -> dict[str, Any]:
    """The audit log's line about what the operator allowed."""
    lines = map(json.loads, (built.home / "logs" / "audit.jsonl").read_text().splitlines())
    allowed = {"user": "operator", "kind": "decision", "decision": "allowed"}
    return next(line for line in lines if allowed.items() <= line.items())


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
        async with page_at(opened["link"]) as (page, _):
            asleep = page.locator("#repos tr", has_text="sleeper").get_by_text("sleeping")
            await expect(asleep).to_be_visible()
            await expect(page.locator("#verdict")).to_have_text("All is well")
            model.play(touch(git_repo), Reply("All done."))
            ts = await built.say(channel, "make a trace")
            await expect(page.locator("#verdict")).to_have_text("1 thing needs you")
            await expect(page.locator("#needs")).to_contain_text(f"touch {git_repo}/trace")
            await expect(page.locator("#needs")).to_contain_text("make a trace")
            place = re.compile(re.escape(f"/archives/{channel}/p{ts.replace('.', '')}"))
            await expect(page.locator("#needs a").last).to_have_attribute("href", place)
            await page.get_by_role("button", name="Allow: sample, make a trace").click()
            await built.answer(channel, ts, "✅ Allowed by operator")
            await built.answer(channel, ts, "All done.")
            assert (git_repo / "trace").exists()
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
        assert f"touch {git_repo}/trace" in decision(built)["text"]
        key = (built.home / "dashboard.key").read_text().strip()
        for secret in (
            key,
            built.workspace.bot_token,
            built.workspace.app_token,
            model_env(model)["ANTHROPIC_API_KEY"],
        ):
            assert secret not in shown
            assert secret not in built.log()


async def test_what_was_said_is_found_and_read_and_what_is_scheduled_is_seen(
    tmp_path: Path, git_repo: Path
) -> None:
    """The transcript comes from a worker that slept, in a tab that got its key from another one."""
    expect.set_options(timeout=PATIENCE_MS)
    async with house(tmp_path, "sample") as built:
        config = built.home / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "dashboard": {"port": free_port()}}))
        channel = await built.add_repo(git_repo, "sample", agent=QUICK, worker={"idleSleepMinutes": 0.01})
        await built.supervise()
        opened = json.loads(await built.run("dashboard", "--json"))
        ts = await built.say(channel, "list the files")
        assert await built.outcome(channel, ts) == "white_check_mark"
        await built.say(channel, "!in 2h look at the penguins")
        async with chromium() as browser:
            tabs = await browser.new_context()
            page = await tabs.new_page()
            await page.goto(opened["link"])
            timer = page.locator("#jobs li", has_text="look at the penguins")
            await timer.get_by_role("button", name="Cancel").click()
            await expect(timer).to_have_count(0)
            asleep = page.locator("#repos tr", has_text="sample").get_by_text("sleeping")
            await expect(asleep).to_be_visible()
            await page.locator("#search-words").fill("list files")
            await page.keyboard.press("Enter")
            found = page.locator("#search").get_by_role("link", name="list the files")
            path = await found.get_attribute("href")
            other = await tabs.new_page()
            await other.goto(f"{opened['url'].rstrip('/')}{path}")
            await expect(other.locator(".said")).to_contain_text("list the files")
            await expect(other.locator(".answer")).not_to_be_empty()
            await expect(other.locator("#runs .state")).to_have_text("done")
            page.once("dialog", lambda dialog: dialog.accept())
            await (
                page.get_by_role("button", name="Restart: sample")
                .or_(page.get_by_role("button", name="Wake: sample"))
                .click()
            )
            await expect(page.locator("#told")).to_contain_text("the worker of sample")


async def test_what_a_killed_supervisor_left_is_continued_and_stopped_on_the_page(
    tmp_path: Path, git_repo: Path
) -> None:
    """A decision that was open when everything was killed is not open any more; the run is continued, and stopped."""
    expect.set_options(timeout=PATIENCE_MS)
    async with (
        ModelServer() as model,
        house(tmp_path, "sample", "sleeper", extra_env=model_env(model)) as built,
    ):
        channel = await served(built, git_repo, tmp_path / "sleeper")
        opened = json.loads(await built.run("dashboard", "--json"))
        async with page_at(opened["link"], width=390) as (page, _):
            model.play(touch(git_repo), touch(git_repo))
            ts = await built.say(channel, "make a trace")
            await expect(page.get_by_role("button", name="Allow: sample, make a trace")).to_be_visible()
            await built.stop(signal.SIGKILL)
            await built.supervise()
            await page.get_by_role("button", name="Continue: sample, make a trace").click()
            await expect(page.get_by_role("button", name="Allow: sample, make a trace")).to_be_visible()
            await page.get_by_role("button", name="Stop: sample, make a trace").click()
            await expect(page.locator("#verdict")).to_have_text("All is well")
            await expect(page.locator("#recent")).to_contain_text("stopped")
            assert await built.outcome(channel, ts) == "octagonal_sign"
        assert not (git_repo / "trace").exists()

"""How much there is to do and what was used today: the same figures wherever somebody looks."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.async_api import expect

from tests.browser import PATIENCE_MS, page_at
from tests.e2e.house import House, house, whole_text
from tests.e2e.test_apphome import shown
from tests.e2e.test_dashboard import free_port
from tests.e2e.test_matrix import rehearsal

LOAD = "1 running, 0 waiting, 1 queued"
RUNS = 4
"""Those that began: the queued one has not, and a shell command is none."""


async def work(built: House, channel: str) -> None:
    """One run that is done, one that fails, one that is stopped, one at work and one that waits for it."""
    for text, outcome in (
        ("list the files", "white_check_mark"),
        ("read no-such-file.txt", "x"),
        ("run: true", "white_check_mark"),
    ):
        assert await built.outcome(channel, await built.say(channel, text)) == outcome
    stopped = await built.say(channel, "wait 600 seconds")
    await built.until("it runs", lambda: built.reactions(channel, stopped) == {"eyes"} or None)
    await built.say(channel, "!stop", stopped)
    assert await built.outcome(channel, stopped) == "octagonal_sign"
    running = await built.say(channel, "wait 600 seconds")
    await built.until("it runs", lambda: built.reactions(channel, running) == {"eyes"} or None)
    await built.answer(channel, await built.say(channel, "list the files"), "Next in line")


async def test_every_place_counts_the_same(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        config = built.home / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "dashboard": {"port": free_port()}}))
        channel = await rehearsal(built, git_repo)
        person = built.workspace.workspace.person
        built.workspace.dialogs.open_home(person, {"tab": "home"})
        await work(built, channel)
        assert '[sample] you: "wait 600 seconds"' in built.log()
        status = await built.until_status(
            lambda told: (
                told["repos"][0]["today"]["runs"] == RUNS and told["repos"][0]["turns"]["queued"] == 1
            )
        )
        assert status["repos"][0]["turns"] == {"running": 1, "queued": 1, "waiting": 0, "parked": 0}
        said = whole_text(await built.answer(channel, await built.say(channel, "!status"), "Today: "))
        found = re.search(r"Today: (.*?) · sandbox", said)
        assert found is not None
        today = found[1]
        assert today == f"{RUNS} runs, {status['repos'][0]['today']['tokens']} tokens"
        assert f"*sample*: {LOAD}" in said
        assert f"{LOAD}, today {today}" in await built.run("status")
        line = f"running · {LOAD} · today {today}"
        await built.until("them in App Home", lambda: line in shown(built, person.id) or None)
        link = json.loads(await built.run("dashboard", "--json"))["link"]
        async with page_at(link) as (page, _):
            row = page.locator("#repos tr", has_text="sample")
            await expect(row.get_by_text(LOAD, exact=True)).to_be_visible(timeout=PATIENCE_MS)
            await expect(row.get_by_text(today, exact=True)).to_be_visible()
            await expect(page.locator("#work li")).to_have_count(2)
        await built.say(channel, "!stop all")

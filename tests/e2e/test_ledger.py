"""The ledger and the budget of all repositories, in the running product.

| case | what happens |
|---|---|
| L1 | two repositories end runs at once: a third waits, also after a kill; with a higher limit it goes on |
| L2 | a worker or the supervisor is killed around a run's end: each run has one row, and the sums are the runs' own |
| L3 | the costs of the week are a job of their own: listed, posted in the channel, not again after a restart |
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from codebutler.observe.ledger import total
from tests.e2e.crashes import crash_house
from tests.e2e.house import house, whole_text
from tests.e2e.test_approvals import card
from tests.e2e.test_limits import RETRY, long_day
from tests.integration.worker.test_worker_ledger import rows as ledger_of
from tests.ledger import rows as rows_of
from tests.programs import require

DONE = "white_check_mark"
WORKER = ("result.before", "outbox.before", "outbox.after", "result.after")
PARENT = ("post.before", "post.after")


async def test_l1_a_budget_of_all_repositories_holds_whoever_comes_next(
    tmp_path: Path, git_repo: Path
) -> None:
    require("bwrap")
    other = tmp_path / "other"
    shutil.copytree(git_repo, other)
    async with house(tmp_path, "shop", "blog") as built:
        config = built.home / "config.json"
        given: dict[str, Any] = json.loads(config.read_text())
        given["budget"] = {"timezone": long_day(), "total": {"turnsPerDay": 2}}
        config.write_text(json.dumps(given))
        agent = {"debounceSeconds": 0, "default": "rehearsal"}
        shop = await built.add_repo(git_repo, "shop", agent=agent)
        blog = await built.add_repo(other, "blog", agent=agent)
        await built.supervise()
        asked = await asyncio.gather(*(built.say(channel, "list the files") for channel in (shop, blog)))
        for channel, ts in zip((shop, blog), asked, strict=True):
            assert await built.outcome(channel, ts) == DONE
        await built.until_status(lambda now: all(repo["today"]["runs"] == 1 for repo in now["repos"]))
        third = await built.say(shop, "read README.md")
        message, value = await card(built, shop, third, RETRY)
        assert "The total budget for today is used up: 2 of 2 runs." in whole_text(message)
        assert built.supervisor is not None
        built.supervisor.kill()
        await built.supervisor.wait()
        await built.supervise()
        fourth = await built.say(blog, "read README.md")
        again, _ = await card(built, blog, fourth, RETRY)
        assert "The total budget for today is used up: 2 of 2 runs." in whole_text(again)
        await built.run("config", "set", "budget.total.turnsPerDay", "3")
        await built.click(shop, message["ts"], RETRY, value)
        await built.answer(shop, third, "A sample repository")
        assert await built.outcome(shop, third) == DONE
        assert built.reactions(blog, fourth) == {"hourglass_flowing_sand"}
        told = json.loads(await built.run("ledger", "--json", "--since", "2d"))
        assert told["total"]["runs"] == 3
        assert {row["repo"] for row in told["rows"]} == {"shop", "blog"}


async def test_l2_each_run_has_one_row_whatever_dies_around_its_end(tmp_path: Path) -> None:
    async with crash_house(tmp_path, ["shop"]) as house:
        (talk,) = house.talks
        deaths = [("worker:shop", point) for point in WORKER] + [("parent", point) for point in PARENT]
        for process, point in deaths:
            house.plan(process, (point, 1))
            await talk.say(1)
            await talk.until_over()
            talk.verdict()
        assert house.deaths >= len(PARENT)
    turns = rows_of(
        talk.store, "SELECT id, coalesce(cost_usd, 0), input_tokens FROM turns WHERE started_at IS NOT NULL"
    )
    found = ledger_of(talk.repo)
    assert sorted(row.run for row in found) == sorted(turn_id for turn_id, *_ in turns)
    assert {row.outcome for row in found} <= {"done", "failed", "interrupted", "stopped"}
    assert len(found) >= len(deaths)
    assert total(found).usd == sum(usd for _, usd, _ in turns)
    assert sum(row.input_tokens for row in found) == sum(tokens for *_, tokens in turns)


async def test_l3_the_costs_of_the_week_come_by_themselves(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "shop") as built:
        channel = await built.add_repo(git_repo, "shop", ledger={"weekly": "mon 09:00"})
        await built.supervise()
        [job] = json.loads(await built.run("jobs", "--json"))
        assert (job["name"], job["cron"]) == ("weekly-costs", "0 9 * * mon")
        assert "Starting weekly-costs" in await built.run("jobs", "run", "weekly-costs")

        def posted() -> list[str]:
            told = built.workspace.call("conversations.history", built.workspace.bot_token, channel=channel)
            texts = [whole_text(message) for message in told["messages"]]
            return [text for text in texts if "Last 7 days" in text]

        [text] = await built.until("the costs", posted)
        assert text.startswith("📊")
        await built.until_status(lambda _: True)
        assert await built.stop() == 0
        await built.supervise()
        assert len(posted()) == 1

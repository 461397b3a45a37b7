"""The metrics of the running product."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from tests.e2e.house import house
from tests.e2e.test_dashboard import free_port
from tests.e2e.test_matrix import QUICK
from tests.integration.web.test_metrics import samples


async def test_a_message_is_counted_from_its_event_to_its_calls(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        config, port = built.home / "config.json", free_port()
        given = {"dashboard": {"port": port}, "metrics": {"allow": ["127.0.0.1"]}}
        config.write_text(json.dumps(json.loads(config.read_text()) | given))
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        ts = await built.say(channel, "create made.txt with one")
        assert await built.outcome(channel, ts) == "white_check_mark"
        repo = ("repo", "sample")
        await built.until_status(lambda status: status["repos"][0]["today"]["runs"] == 1)
        async with httpx.AsyncClient() as client:
            found = samples((await client.get(f"http://127.0.0.1:{port}/metrics")).text)
    assert found["codebutler_events_total", (("outcome", "accepted"),)] >= 1
    assert found["codebutler_event_seconds_count", ()] >= 1
    assert found["codebutler_turns_total", (("agent", "rehearsal"), ("outcome", "done"), repo)] == 1
    assert found["codebutler_chat_calls_total", (("call", "post"), ("chat", "slack"))] >= 1
    assert found["codebutler_chat_connected", (("chat", "slack"),)] == 1
    assert found["codebutler_worker_state", (repo, ("state", "running"))] == 1
    assert found["codebutler_runs_today", (repo,)] == 1

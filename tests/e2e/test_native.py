"""The native agent on the product, over a model service of the tests, behind real walls.

| case | what happens |
|---|---|
| N01 | `/agent …` edits a file, `agent: …` runs a command, both with leave; it outlives a crash |
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.e2e.house import House, house
from tests.e2e.test_approvals import LEAVE, card
from tests.modelserver.completions import CompletionsServer
from tests.modelserver.server import Call, Reply
from tests.programs import require

KEY = "sk-native-not-a-real-key"


async def native(built: House, repo: Path, model: CompletionsServer) -> str:
    """A repository whose native agent asks before it changes anything; returns the channel."""
    require("bwrap")
    section = {"baseUrl": model.base_url, "apiKey": KEY, "model": "kimi-test", "permissionMode": "ask"}
    channel = await built.add_repo(repo, "sample", agent={"debounceSeconds": 0}, native=section)
    await built.supervise()
    return channel


async def allow(built: House, channel: str, root: str, shown: str) -> None:
    """Press Allow on the card that shows this."""
    message, value = await card(built, channel, root)
    assert shown in message["text"]
    await built.click(channel, message["ts"], LEAVE, value)


async def test_n01_a_task_with_leave_through_a_crash(tmp_path: Path, git_repo: Path) -> None:
    edit = Call("edit_file", {"path": "src/app.py", "old": "hello", "new": "good day"})
    spy = "env; cat .codebutler/config.json; cat .codebutler/native/*; cat /proc/net/dev | wc -l"
    async with CompletionsServer() as model, house(tmp_path, "sample") as built:
        channel = await native(built, git_repo, model)
        model.play(Reply("I make it polite.", (edit,)), Reply("It is polite now."))
        ts = await built.say(channel, "/agent be polite")
        await allow(built, channel, ts, "good day")
        await built.answer(channel, ts, "It is polite now.")
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert "good day" in (git_repo / "src" / "app.py").read_text()

        # The same session later; what it runs sees no key, no state of ours and no network.
        model.play(
            Reply("I look around.", (Call("run_terminal_command", {"command": spy}),)), Reply("", hold=True)
        )
        again = await built.say(channel, "agent: look around", thread_ts=ts)
        await allow(built, channel, ts, spy)
        await model.seen(4)
        told = str(model.requests[3]["messages"])
        assert "be polite" in told
        assert "PATH=" in told
        assert KEY not in told
        assert "kimi-test" not in told

        # Killed while the model answers: asked about, never repeated by itself, and taken up with all it knew.
        status = await built.status()
        assert status is not None
        os.kill(status["repos"][0]["worker"]["pid"], signal.SIGKILL)
        model.play(Reply("I had looked around."))
        message, value = await card(built, channel, ts, "codebutler.retry")
        await built.click(channel, message["ts"], "codebutler.retry", value)
        await built.answer(channel, ts, "I had looked around.")
        assert await built.outcome(channel, again) == "white_check_mark"
        assert "I look around." in str(model.requests[-1]["messages"])
        assert set(model.keys) == {KEY}

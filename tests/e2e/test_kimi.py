"""The real Kimi Code in a thread, and any agent that speaks its protocol.

| case | what happens |
|---|---|
| Q01 | a thread of Claude Code's goes on with Kimi Code, which knows it, asks leave once, and goes on after a restart;
then with the scripted agent of the configuration |
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.e2e.house import House, house
from tests.e2e.test_approvals import card, model_env
from tests.modelserver.server import Call, ModelServer, Reply
from tests.programs import path_with_node, require

SESSION = "codebutler.allow_session"
ACP_AGENT = Path(__file__).parents[1] / "acpagent" / "agent.py"


async def working(built: House, repo: Path, model: ModelServer, agent: Path) -> str:
    """A repository with three agents; returns its channel."""
    require("bwrap")
    other = {"prefix": "other", "binary": sys.executable, "args": [str(agent), "plain"], "mode": "acp"}
    channel = await built.add_repo(
        repo,
        "sample",
        agent={"debounceSeconds": 0},
        claude={"binary": str(require("claude"))},
        kimi={
            "binary": str(require("kimi")),
            "apiKey": "sk-not-a-real-key-0123456789",
            "baseUrl": f"{model.url}/v1",
            "permissionMode": "ask",
        },
        commands=[other],
    )
    await built.supervise()
    return channel


async def test_q01_kimi_takes_a_thread_over_and_keeps_it(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model:
        env = {**model_env(model), "PATH": path_with_node()}
        async with house(tmp_path, "sample", extra_env=env) as built:
            # Inside its walls an agent sees nothing of the tests but the repository.
            script = git_repo / "agent.py"
            script.write_text(ACP_AGENT.read_text())
            channel = await working(built, git_repo, model, script)
            model.play(Reply("The greeting is in src/app.py."))
            root = await built.say(channel, "where is the greeting?")
            await built.answer(channel, root, "The greeting is in src/app.py.")

            make = Call("Bash", {"command": "echo kimi > made.txt", "description": "make it"})
            # The second time nobody is asked any more.
            model.play(Reply("", (make,)), Reply("", (make,)), Reply("Made by Kimi."))
            asked = await built.say(channel, "kimi: make the file", thread_ts=root)
            shown, value = await card(built, channel, root, SESSION)
            assert "echo kimi &gt; made.txt" in str(shown)
            await built.click(channel, shown["ts"], SESSION, value)
            await built.answer(channel, root, "Made by Kimi.")
            assert await built.outcome(channel, asked) == "white_check_mark"
            assert (git_repo / "made.txt").read_text() == "kimi\n"
            assert "The greeting is in src/app.py." in model.said()
            assert model.keys[-1] == "sk-not-a-real-key-0123456789"

            assert await built.stop() == 0
            await built.supervise()
            model.play(Reply("Kimi remembers."))
            await built.say(channel, "kimi: what did you make?", thread_ts=root)
            await built.answer(channel, root, "Kimi remembers.")
            assert "echo kimi > made.txt" in model.said()

            await built.say(channel, "other: and you?", thread_ts=root)
            # Its instructions and the thread's record, which it repeats.
            await built.answer(channel, root, "You said: RULES OF THIS REPOSITORY")

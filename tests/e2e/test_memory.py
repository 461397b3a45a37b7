"""What is learned and taught, on the whole product.

| case | what happens |
|---|---|
| R01 | a conversation ends, the thread asks, the supervisor is killed, Keep is pressed: the next session is told |
| R02 | a repository's skill is used once it is trusted, by the person's words |
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.e2e.house import house
from tests.e2e.test_matrix import QUICK, claude, model_env
from tests.modelserver.completions import CompletionsServer
from tests.modelserver.server import ModelServer, Reply
from tests.programs import require

FACT = "Deploys go to staging first"


async def test_r01_what_was_learned_is_asked_kept_and_told(tmp_path: Path, git_repo: Path) -> None:
    async with (
        CompletionsServer() as kimi,
        ModelServer() as model,
        house(tmp_path, "sample", extra_env=model_env(model)) as built,
    ):
        kimi.play(Reply(json.dumps([{"op": "append", "line": f"- {FACT}"}])))
        require("bwrap")
        channel = await built.add_repo(
            git_repo,
            "sample",
            agent={**QUICK, "silenceSeconds": 0.2},
            claude={"binary": str(require("claude"))},
            kimi={"apiKey": "sk-kimi-0123456789abcdef", "baseUrl": kimi.base_url, "model": "small"},
            memory={"review": "ask"},
        )
        await built.supervise()
        ts = await built.say(channel, "read README.md")
        card = await built.answer(channel, ts, FACT)
        keep = card["blocks"][-1]["elements"][0]
        assert not (git_repo / ".codebutler" / "memory.md").exists()

        # The log is written in the background: a kill would cut off its last lines.
        logged = f'MEM  [sample] small: append "{FACT}" (asked first)'
        await built.until_status(lambda _: logged in built.log())
        await built.stop(signal.SIGKILL)
        await built.supervise()
        await built.click(channel, card["ts"], keep["action_id"], keep["value"])
        await built.until(
            "the verdict", lambda: "Kept by" in built.message(channel, card["ts"])["text"] or None
        )
        listed = await built.say(channel, "!memory")
        await built.answer(channel, listed, f"1. {FACT}")

        model.play(Reply("As you know."))
        again = await built.say(channel, "claude: and now?")
        await built.answer(channel, again, "As you know.")
        told = json.dumps(model.requests[-1])
        assert "<memory>" in told
        assert f"- {FACT}" in told


async def test_r02_a_skill_of_the_repository_waits_for_trust(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        await built.run("skills", "create", "deploy", "--repo", "sample")
        file = git_repo / ".codebutler" / "skills" / "deploy" / "SKILL.md"
        file.write_text(file.read_text() + "Only on Tuesdays.\n")
        early = await built.say(channel, "!skills deploy to staging")
        await built.answer(channel, early, "There is no skill `deploy` here")

        await built.run("trust", "sample")
        model.play(Reply("Done by the book."))
        ts = await built.say(channel, "!skills deploy to staging")
        await built.answer(channel, ts, "Done by the book.")
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert "Only on Tuesdays." in model.said(0)
        assert "to staging" in model.said(0)

"""A session of the real Claude Code, adopted from the command line, continued in the channel, and back.

| case | what happens |
|---|---|
| A01 | `codebutler adopt`: a thread with its history; a reply knows it, also after a restart; `!terminal` leads back |
"""

from __future__ import annotations

from pathlib import Path

from tests.commands import output_of
from tests.e2e.house import command, house, whole_text
from tests.e2e.test_matrix import claude, model_env
from tests.modelserver.server import ModelServer, Reply
from tests.ordinary import give_away
from tests.programs import require

SESSION = "35fbdb94-baee-4fcb-a393-f01a17fe63e6"


async def test_a01_adopt_and_back(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        model.play(*[Reply(f"Heard, number {number}.") for number in range(4)])
        env = {**built.env, **model_env(model), "IS_SANDBOX": "1"}
        at_desk = f"cd {git_repo} && {require('claude')} -p"
        await output_of("bash", "-c", f"{at_desk} 'remember xylophone' --session-id {SESSION}", env=env)
        give_away(Path(env["HOME"]) / ".claude")
        channel = await claude(built, git_repo)
        shown = await output_of(*command("adopt", SESSION[:8], "--repo", "sample"), env=built.env)
        assert "remember xylophone" in shown
        messages = built.workspace.workspace.channel(channel).messages
        [root] = [ref for ref, message in messages.items() if "!continue" in message.text]
        for number, prompt in enumerate(("which word?", "and after a restart?"), start=1):
            asked = await built.say(channel, prompt, thread_ts=root)
            await built.answer(channel, root, f"Heard, number {number}.", after=asked)
            assert "xylophone" in model.said()
            if number == 1:
                await built.stop()
                await built.supervise()
        asked = await built.say(channel, "!terminal", thread_ts=root)
        told = whole_text(await built.answer(channel, root, "--resume", after=asked)).replace("&amp;", "&")
        line = next(line for line in told.splitlines() if line.startswith("cd "))
        await output_of("bash", "-c", f"{line} -p 'at the desk'", env=env)
        assert "and after a restart?" in model.said()

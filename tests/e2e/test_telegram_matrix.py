"""The core rows of the matrix (test_matrix.py) in Telegram: the same things happen, as Telegram shows them.

| case | what happens |
|---|---|
| E01 | an answer to the message, with its mark and what it cost |
| E02 | Claude Code edits a file in the repository |
| E03 | a reply goes on with the same session, also after the supervisor was restarted; a new message begins another |
| E04 | an error of the model's service ends in a mark and a line |
| E05 | /stop ends a running turn and everything it started |
| E06 | a worker killed in mid-turn: the conversation asks, Continue resumes, nothing reruns by itself |
| E07 | what was taken survives a supervisor killed with SIGKILL, with exactly one outcome |
| E08 | a stranger is told once, nothing runs |
| E10 | an idle worker sleeps, and the next message wakes it |
| E11 | SIGTERM lets the running turn finish, exit code 0 |
| E13 | send --wait prints the answer |
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.test_matrix import eventually, model_env, processes
from tests.e2e.test_telegram import Talk, talk
from tests.modelserver.server import Call, ModelServer, Reply
from tests.programs import require
from tests.telegram.server import BEN, GROUP


@asynccontextmanager
async def claude(tmp_path: Path, repo: Path) -> AsyncIterator[tuple[Talk, ModelServer]]:
    """A repository in Telegram answered by the real Claude Code."""
    config = {"claude": {"binary": str(require("claude"))}, "agent": {"debounceSeconds": 0}}
    async with (
        ModelServer() as model,
        talk(tmp_path, repo, config=json.dumps(config), agent="claude", env=model_env(model)) as it,
    ):
        yield it, model


async def test_e01_an_answer_with_its_mark(tmp_path: Path, git_repo: Path) -> None:
    async with talk(tmp_path, git_repo) as it:
        asked = it.server.say(GROUP, "list the files")
        answer = await it.heard("README.md")
        await it.marked(asked, "👍")
        assert answer["reply_to_message"]["message_id"] == asked
        assert "tokens:" in answer["text"]


async def test_e02_claude_edits_a_file(tmp_path: Path, git_repo: Path) -> None:
    async with claude(tmp_path, git_repo) as (it, model):
        target = git_repo / "greeting.txt"
        model.play(
            Reply("I will write it.", (Call("Write", {"file_path": str(target), "content": "hello\n"}),)),
            Reply("Wrote **greeting.txt**."),
        )
        asked = it.server.say(GROUP, "write a greeting")
        answer = await it.heard("Wrote greeting.txt.")
        await it.marked(asked, "👍")
        assert "bold" in {entity["type"] for entity in answer["entities"]}
        assert target.read_text() == "hello\n"


async def test_e03_a_chain_of_replies_is_the_session_also_after_a_restart(
    tmp_path: Path, git_repo: Path
) -> None:
    async with claude(tmp_path, git_repo) as (it, model):
        model.play(Reply("The word is quincunx."), Reply("Still quincunx."), Reply("No idea."))
        it.server.say(GROUP, "tell me a word")
        first = await it.heard("The word is quincunx.")
        await it.built.stop()
        await it.connected()
        second = it.server.say(GROUP, "and now?", reply_to=first["message_id"])
        await it.heard("Still quincunx.")
        await it.marked(second, "👍")
        it.server.say(GROUP, "which word?")
        await it.heard("No idea.")
        assert "The word is quincunx." in model.said(1)
        assert "quincunx" not in model.said(2)


async def test_e04_an_error_of_the_service_is_told_in_a_line(tmp_path: Path, git_repo: Path) -> None:
    async with claude(tmp_path, git_repo) as (it, model):
        model.play(*[Reply(status=400, error="the model is on holiday")] * 20)
        asked = it.server.say(GROUP, "hello")
        await it.marked(asked, "👎")
        await it.heard("the model is on holiday")


async def test_e05_stop_ends_the_turn_and_all_it_started(tmp_path: Path, git_repo: Path) -> None:
    async with claude(tmp_path, git_repo) as (it, model):
        marker = f"codebutler-te05-{os.getpid()}"
        sleeper = f"nohup setsid python3 -c 'import time; time.sleep(600)' {marker} & sleep 300"
        model.play(
            Reply("Waiting.", (Call("Bash", {"command": sleeper, "timeout": 400_000}),)), Reply("Late.")
        )
        asked = it.server.say(GROUP, "wait for it")
        await eventually(30, lambda: bool(processes(marker)))
        it.server.say(GROUP, "/stop@butler_bot", reply_to=asked)
        await it.marked(asked, "🤷")
        await eventually(5, lambda: not processes(marker))
        assert it.own("Late.") == []


async def test_e06_a_worker_killed_in_mid_turn_asks_and_continues(tmp_path: Path, git_repo: Path) -> None:
    async with claude(tmp_path, git_repo) as (it, model):
        model.play(Reply("Thinking", hold=True))
        asked = it.server.say(GROUP, "count to a million")
        await model.seen(1)
        status = await it.built.until_status(lambda status: status["repos"][0]["turns"]["running"] == 1)
        os.kill(status["repos"][0]["worker"]["pid"], signal.SIGKILL)
        question = await it.heard("Continue")
        assert len(model.requests) == 1
        model.play(Reply("I had got to seven."))
        await it.pressed(question, "Continue")
        await it.heard("I had got to seven.")
        await it.marked(asked, "👍")


async def test_e07_what_was_taken_survives_a_killed_supervisor(tmp_path: Path, git_repo: Path) -> None:
    async with talk(tmp_path, git_repo) as it:
        first = it.server.say(GROUP, "list the files")
        shown = it.server.telegram.chats[GROUP].reactions
        await it.until("the message queued", lambda: first in shown)
        await it.built.stop(signal.SIGKILL)
        await it.connected()
        it.server.say(GROUP, "read README.md")
        await it.heard("A sample repository.")

        def said() -> list[dict[str, Any]]:
            return [each for each in it.own("") if each["reply_to_message"]["message_id"] == first]

        await it.until("one outcome", said)
        assert len([each for each in said() if "tokens:" in each["text"]]) <= 1


async def test_e08_a_stranger_is_told_once_and_nothing_runs(tmp_path: Path, git_repo: Path) -> None:
    async with talk(tmp_path, git_repo) as it:
        it.server.say(GROUP, "create owned.txt with gotcha", user=BEN)
        it.server.say(GROUP, "/status@butler_bot", user=BEN)
        asked = it.server.say(GROUP, "list the files")
        await it.marked(asked, "👍")
        assert len(it.own("not authorized")) == 1
        assert not (git_repo / "owned.txt").exists()


async def test_e10_an_idle_worker_sleeps_and_wakes(tmp_path: Path, git_repo: Path) -> None:
    config = json.dumps({"worker": {"idleSleepMinutes": 0.01}})
    async with talk(tmp_path, git_repo, config=config) as it:
        await it.built.until_status(lambda status: status["repos"][0]["worker"]["state"] == "sleeping")
        asked = it.server.say(GROUP, "list the files")
        await it.heard("README.md")
        await it.marked(asked, "👍")


async def test_e11_sigterm_lets_the_running_turn_finish(tmp_path: Path, git_repo: Path) -> None:
    async with claude(tmp_path, git_repo) as (it, model):
        model.play(Reply("Done in time.", hold=True))
        asked = it.server.say(GROUP, "take your time")
        await model.seen(1)
        assert it.built.supervisor is not None
        it.built.supervisor.send_signal(signal.SIGTERM)
        model.release.set()
        assert await it.built.supervisor.wait() == 0
        await it.heard("Done in time.")
        await it.marked(asked, "👍")


async def test_e13_send_waits_for_the_answer(tmp_path: Path, git_repo: Path) -> None:
    async with talk(tmp_path, git_repo) as it:
        assert "README.md" in await it.built.run("send", "blog", "list the files", "--wait")
        await it.heard("README.md")

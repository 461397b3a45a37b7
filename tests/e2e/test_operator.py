"""The operator at the terminal, with a supervisor at work.

| case | what happens |
|---|---|
| O01 | chat from a pipe: all of it is one message, whose answer is printed; --continue goes on in its thread |
| O02 | stop ends what runs, by the operator's name |
| O03 | a second signal ends everything now; what ran is asked about at the next start |
| O04 | new tokens, brought by setup, are used without a restart |
| O05 | an event is acknowledged in time though the disk holds still for a moment |
| O06 | logs, config and status of the running product hold no token; the status has its promised shape |
| O07 | workspace --json tells where it is; slack_sdk speaks there |
| O08 | send --wait prints every answer, of skills and commands too, and fails where they do |
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from tests.e2e.house import DEADLINE_S, House, command, house, whole_text
from tests.e2e.test_matrix import claude, model_env, rehearsal
from tests.modelserver.server import ModelServer, Reply


async def test_o01_a_chat_from_a_pipe(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        said = await piped(built, b"list the files\n\nread README.md\n", "chat", "sample")
        assert said.index("app.py") < said.index("A sample repository.")
        assert "pong" in await piped(built, b"!ping", "chat", "--continue")
        assert "from here" in await piped(built, b"run: echo from here", "send", "sample", "-", "--wait")
        roots = [m for m in built.workspace.workspace.channel(channel).messages.values() if not m.is_reply]
        texts = [root.text for root in roots if root.by_app]
        assert texts == ["*operator:* list the files\n\nread README.md", "*operator:* run: echo from here"]


async def test_setup_leaves_what_a_house_begins_with(tmp_path: Path) -> None:
    async with house(tmp_path, "sample", cards=True) as built:
        config = built.home / "config.json"
        begun = json.loads(config.read_text())
        config.unlink()
        server = built.workspace
        tokens = ("--bot-token", server.bot_token, "--app-token", server.app_token)
        person = server.workspace.person.id
        await built.run("setup", *tokens, "--allow-user", person, "--api-url", server.api_url)
        assert json.loads(config.read_text()) == begun


async def test_o02_stop_from_the_terminal(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        model.play(Reply("Thinking", hold=True))
        ts = await built.say(channel, "count to a million")
        await model.seen(1)
        assert "stopping the runs of sample" in await built.run("stop", "all")
        assert await built.outcome(channel, ts) == "octagonal_sign"
        assert await built.answer(channel, ts, "Stopped by operator")


async def test_o03_a_second_signal_ends_it_now(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        model.play(Reply("Thinking", hold=True))
        ts = await built.say(channel, "count to a million")
        await model.seen(1)
        assert built.supervisor is not None
        built.supervisor.send_signal(signal.SIGINT)
        await wait_for_log(built, "a second signal ends it now")
        built.supervisor.send_signal(signal.SIGINT)
        async with asyncio.timeout(10):
            assert await built.supervisor.wait() == 0
        model.release.set()
        await built.supervise()
        await built.answer(channel, ts, "count to a million")
        assert len(model.requests) == 1


async def test_a_setting_that_needs_a_restart_says_so(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        await rehearsal(built, git_repo)
        told = await built.run("config", "set", "metrics.allow", '["127.0.0.1"]')
        assert "Supervisor reloaded: restart to apply metrics\n" in told
        assert "nothing changed" in await built.run("config", "unset", "metrics.allow")


async def test_o04_new_tokens_without_a_restart(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        bot, app = "xoxb-1-the-next-one", "xapp-1-the-next-one"
        built.workspace.workspace.renew_tokens(bot, app)
        ts = built.workspace.say(channel, "list the files")
        await built.until_status(lambda status: "slack.botToken" in status["slack"]["trouble"])
        told = await built.run("setup", "--bot-token", bot, "--app-token", app)
        assert "Supervisor reloaded" in told
        await built.answer(channel, ts, "README.md")
        built.workspace.hub.connections.drop()
        await built.until_status(lambda status: status["slack"]["reconnects"] == 1)
        after = built.workspace.say(channel, "!ping")
        await built.answer(channel, after, "pong")
        assert bot not in built.log() + await built.run("config", "sample")


async def test_o05_a_disk_that_holds_still(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        with closing(sqlite3.connect(built.home / "journal.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            ts = built.workspace.say(channel, "!ping")
            await built.until("the event on its way", lambda: built.workspace.hub.pending == 1 or None)
            other.execute("ROLLBACK")
        await built.answer(channel, ts, "pong")
        assert built.workspace.hub.counts.retried == 0


async def test_o06_nothing_shows_a_token(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        secret = built.workspace.bot_token
        ts = await built.say(channel, f"create {secret}.txt with {built.workspace.app_token}")
        await built.outcome(channel, ts)
        shown = [
            await built.run(*words) for words in (("logs", "-n", "100"), ("config",), ("status", "--json"))
        ]
        assert_status(json.loads(shown[-1]), str(git_repo), channel)
        shown += [(built.home / "logs" / name).read_text() for name in ("codebutler.log", "audit.jsonl")]
        shown += [whole_text(message) for message in built.answers(channel, ts)]
        assert [text for text in shown if secret in text or built.workspace.app_token in text] == []


def assert_status(status: dict[str, Any], path: str, channel: str) -> None:
    """What scripts rely on; there may be more."""
    assert isinstance(status["supervisor"]["pid"], int)
    assert isinstance(status["supervisor"]["version"], str)
    assert isinstance(status["supervisor"]["uptime_s"], float)
    slack = {name: status["slack"][name] for name in ("state", "connections", "reconnects")}
    assert slack == {"state": "connected", "connections": 1, "reconnects": 0}
    assert isinstance(status["slack"]["last_event_age_s"], float)
    [repo] = status["repos"]
    assert (repo["name"], repo["path"], repo["channel_id"]) == ("sample", path, channel)
    worker = {name: repo["worker"][name] for name in ("state", "restarts")}
    assert worker == {"state": "running", "restarts": 0}
    assert isinstance(repo["worker"]["pid"], int)
    assert repo["worker"]["pss_bytes"] > 0
    assert {name: type(number) for name, number in repo["turns"].items()} == dict.fromkeys(
        ("running", "queued", "waiting", "parked"), int
    )
    assert isinstance(status["journal"]["pending"], int)
    assert isinstance(status["outbox"]["pending"], int)


async def test_o07_the_workspace_alone(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(*command("workspace", "--json"), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            told = json.loads(await process.stdout.readline())
        assert sorted(told) == ["api_url", "app_token", "bot_token", "url", "user_token"]
        person = AsyncWebClient(told["user_token"], base_url=told["api_url"])
        person.proxy = None
        channels = (await person.conversations_list())["channels"]
        posted = await person.chat_postMessage(channel=channels[0]["id"], text="hello")
        assert "bot_id" not in posted["message"]
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            assert await process.wait() == 0


async def wait_for_log(built: House, text: str) -> None:
    """A file tells nobody of its changes: look again until the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while text not in built.log():  # noqa: ASYNC110 - nobody would set an event
            await asyncio.sleep(0.05)


async def test_o08_send_waits_for_all_of_it(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        await rehearsal(built, git_repo)
        said = await built.run("send", "sample", "!skills review-diff list the files", "--wait")
        assert "app.py" in said
        (git_repo / "src" / "app.py").write_text("print('changed')\n" * 500)
        sent = await built.run("send", "sample", "!diff", "--wait")
        assert "📎 changes.diff\n" in sent
        assert sent.count("+print('changed')") == 500
        (git_repo / "src" / "app.py").write_text("print('changed')\n")
        assert "+print('changed')" in await built.run("send", "sample", "!diff", "--wait")
        assert "Nothing is scheduled" in await built.run("send", "sample", "!jobs", "--wait")
        process = await asyncio.create_subprocess_exec(
            *command("send", "sample", "!pong", "--wait"),
            env=built.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        async with asyncio.timeout(DEADLINE_S):
            told, beside = await process.communicate()
        assert (process.returncode, b"!ping" in told, b"nothing was run" in beside) == (1, True, True)


async def piped(built: House, said: bytes, *arguments: str) -> str:
    """What a command answers to its standard input."""
    process = await asyncio.create_subprocess_exec(
        *command(*arguments), env=built.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    async with asyncio.timeout(DEADLINE_S):
        output, _ = await process.communicate(said)
    assert process.returncode == 0, output
    return output.decode()

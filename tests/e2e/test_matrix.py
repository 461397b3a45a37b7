"""The product as its users run it: a person in a channel, a real supervisor, real workers, a real agent.

| case | what happens |
|---|---|
| E01 | the rehearsal agent answers in the thread, with a footer, and the message ends with one check mark |
| E02 | Claude Code edits a file in the repository |
| E03 | a reply in the thread goes on with the same session, also after the supervisor was restarted |
| E04 | an error of the model's service ends in a cross and a line |
| E05 | !stop ends a running turn and everything it started |
| E06 | a worker killed in mid-turn: the thread asks, Continue resumes, nothing reruns by itself |
| E07 | a supervisor killed after the acknowledgement: answered once at the next start |
| E08 | a stranger is told once, nothing runs |
| E09 | one repository's crash loop leaves the other working |
| E10 | an idle worker sleeps and the next message wakes it |
| E11 | SIGTERM lets the running turn finish, exit code 0 |
| E12 | a second supervisor is refused and names the holder |
| E13 | send --wait prints the answer |
| E14 | a message during a socket refresh is answered once |
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from tests.e2e.house import House, house, whole_text
from tests.modelserver.server import Call, ModelServer, Reply
from tests.programs import require

QUICK = {"debounceSeconds": 0, "default": "rehearsal"}
CLAUDE = {"debounceSeconds": 0, "default": "claude"}


async def rehearsal(built: House, repo: Path) -> str:
    """A repository answered by the rehearsal agent, and a running supervisor; returns the channel."""
    require("bwrap")
    channel = await built.add_repo(repo, "sample", agent=QUICK)
    await built.supervise()
    return channel


async def claude(built: House, repo: Path) -> str:
    """A repository answered by the real Claude Code; returns the channel."""
    require("bwrap")
    binary = require("claude")
    channel = await built.add_repo(repo, "sample", agent=CLAUDE, claude={"binary": str(binary)})
    await built.supervise()
    return channel


def model_env(model: ModelServer) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-ant-api03-not-a-real-key"}


async def test_e01_an_answer_in_the_thread(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        ts = await built.say(channel, "list the files")
        answer = await built.answer(channel, ts, "README.md")
        assert "_tokens:" in whole_text(answer)
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert answer["thread_ts"] == ts


async def test_e02_claude_edits_a_file(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        target = str(git_repo / "greeting.txt")
        model.play(
            Reply("I will write it.", (Call("Write", {"file_path": target, "content": "hello\n"}),)),
            Reply("Wrote **greeting.txt**."),
        )
        ts = await built.say(channel, "write a greeting")
        answer = await built.answer(channel, ts, "Wrote **greeting.txt**.")
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert (git_repo / "greeting.txt").read_text() == "hello\n"
        assert "write a greeting" in model.said(0)
        assert "xox" not in json.dumps([model.requests, answer])


async def test_e03_the_thread_is_the_session_also_after_a_restart(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        model.play(
            Reply("The word is quincunx."),
            Reply("I said quincunx."),
            Reply("Still quincunx."),
            Reply("No idea."),
        )
        ts = await built.say(channel, "tell me a word")
        await built.answer(channel, ts, "The word is quincunx.")
        second = await built.say(channel, "which word was it?", thread_ts=ts)
        await built.answer(channel, ts, "I said quincunx.")
        assert await built.outcome(channel, second) == "white_check_mark"
        assert await built.stop() == 0
        await built.supervise()
        await built.say(channel, "and now?", thread_ts=ts)
        await built.answer(channel, ts, "Still quincunx.")
        fresh = await built.say(channel, "which word?")
        await built.answer(channel, fresh, "No idea.")
        assert "The word is quincunx." in model.said(1)
        assert "I said quincunx." in model.said(2)
        assert "quincunx" not in model.said(3)


async def test_e04_an_error_of_the_service_is_told_in_a_line(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        model.play(*[Reply(status=400, error="the model is on holiday")] * 20)
        ts = await built.say(channel, "hello")
        assert await built.outcome(channel, ts) == "x"
        assert await built.answer(channel, ts, "the model is on holiday")


async def test_e05_stop_ends_the_turn_and_all_it_started(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        marker = f"codebutler-e05-{os.getpid()}"
        sleeper = f"nohup setsid python3 -c 'import time; time.sleep(600)' {marker} & sleep 300"
        model.play(
            Reply("Waiting.", (Call("Bash", {"command": sleeper, "timeout": 400_000}),)), Reply("Late.")
        )
        ts = await built.say(channel, "wait for it")
        await built.until("the turn at work", lambda: "eyes" in built.reactions(channel, ts) or None)
        await eventually(30, lambda: bool(processes(marker)))
        await built.say(channel, "!stop", thread_ts=ts)
        assert await built.outcome(channel, ts) == "octagonal_sign"
        await eventually(5, lambda: not processes(marker))


async def test_e06_a_worker_killed_in_mid_turn_asks_and_continues(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        model.play(Reply("Thinking", hold=True))
        ts = await built.say(channel, "count to a million")
        await model.seen(1)
        status = await built.until_status(lambda status: status["repos"][0]["turns"]["running"] == 1)
        os.kill(status["repos"][0]["worker"]["pid"], signal.SIGKILL)
        asked = await built.until("the question", lambda: buttons(built, channel, ts, "codebutler.retry"))
        assert len(model.requests) == 1
        model.play(Reply("I had got to seven."))
        await built.click(channel, asked["ts"], "codebutler.retry", asked["value"])
        await built.answer(channel, ts, "I had got to seven.")
        assert await built.outcome(channel, ts) == "white_check_mark"


async def test_e07_what_was_acknowledged_survives_a_killed_supervisor(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        first = await built.say(channel, "list the files")
        await built.until("the message queued", lambda: built.reactions(channel, first) or None)
        await built.stop(signal.SIGKILL)
        await built.supervise()
        second = await built.say(channel, "read README.md")
        await built.answer(channel, second, "A sample repository.")
        said = await built.until("one outcome", lambda: built.answers(channel, first))
        assert len([m for m in said if "_tokens:" in whole_text(m)]) <= 1


async def test_e08_a_stranger_is_told_once_and_nothing_runs(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        stranger = built.workspace.add_user("mallory")
        ts = built.workspace.say(channel, "create owned.txt with gotcha", user=stranger)
        again = built.workspace.say(channel, "!status", user=stranger)
        await built.answer(channel, ts, "not authorized")
        owners = await built.say(channel, "list the files")
        await built.answer(channel, owners, "README.md")
        assert built.answers(channel, again) == []
        assert not (git_repo / "owned.txt").exists()
        audit = (built.home / "logs" / "audit.jsonl").read_text().splitlines()
        assert len([line for line in audit if stranger.id in line]) == 2  # a prompt and a command


async def test_e09_a_crash_loop_leaves_the_other_repository_working(tmp_path: Path, git_repo: Path) -> None:
    other = shutil.copytree(git_repo, tmp_path / "other")
    async with house(tmp_path, "sample", "broken") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.add_repo(other, "broken", agent=QUICK)
        (other / ".codebutler" / "store.db").write_bytes(b"no database at all" * 100)
        await built.start_supervisor()
        status = await built.until_status(
            lambda status: (
                status["slack"]["state"] == "connected"
                and status["repos"][0]["worker"]["state"] == "running"
                and status["repos"][1]["worker"]["state"] not in ("running", "starting")
            )
        )
        assert [repo["name"] for repo in status["repos"]] == ["sample", "broken"]
        ts = await built.say(channel, "list the files")
        assert await built.answer(channel, ts, "README.md")


async def test_e10_an_idle_worker_sleeps_and_wakes(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK, worker={"idleSleepMinutes": 0.01})
        await built.supervise()
        asleep = await built.until_status(lambda status: status["repos"][0]["worker"]["state"] == "sleeping")
        assert asleep["repos"][0]["worker"]["pid"] is None
        ts = await built.say(channel, "list the files")
        assert await built.answer(channel, ts, "README.md")


async def test_e11_sigterm_lets_the_running_turn_finish(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        model.play(Reply("Done in time.", hold=True))
        ts = await built.say(channel, "take your time")
        await model.seen(1)
        assert built.supervisor is not None
        built.supervisor.send_signal(signal.SIGTERM)
        model.release.set()
        assert await built.supervisor.wait() == 0
        assert await built.answer(channel, ts, "Done in time.")
        assert await built.outcome(channel, ts) == "white_check_mark"


async def test_e12_a_second_supervisor_is_refused(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        await rehearsal(built, git_repo)
        assert built.supervisor is not None
        refused = await built.run("supervise", check=False)
        assert f"pid {built.supervisor.pid}" in refused
        assert len(refused.splitlines()) == 1


async def test_e13_send_waits_for_the_answer(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        await rehearsal(built, git_repo)
        assert "README.md" in await built.run("send", "sample", "list the files", "--wait")
        assert "pong" in (await built.run("send", "sample", "!ping", "--wait")).lower()


async def test_e14_a_refresh_of_the_socket_loses_nothing(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        said = []
        for number in range(6):
            said.append(await built.say(channel, "!ping"))
            if number == 2:
                built.workspace.hub.disconnect("refresh_requested")
        for ts in said:
            await built.answer(channel, ts, "pong")
        assert [len(built.answers(channel, ts)) for ts in said] == [1] * 6


def buttons(built: House, channel: str, ts: str, action: str) -> dict[str, str] | None:
    """The message of the thread that carries a button, with the button's value."""
    for message in built.answers(channel, ts):
        for block in message.get("blocks", []):
            for element in block.get("elements", []):
                if element.get("action_id") == action:
                    return {"ts": message["ts"], "value": element["value"]}
    return None


def processes(marker: str) -> list[str]:
    """The pids whose command line holds ``marker``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in entry.read_bytes():
                found.append(entry.parent.name)
        except OSError:
            continue
    return found


async def eventually(deadline_s: float, look: Callable[[], bool]) -> None:
    """The process table tells nobody of its changes: look again until the deadline."""
    async with asyncio.timeout(deadline_s):
        while not look():  # noqa: ASYNC110 - nobody would set an event
            await asyncio.sleep(0.05)

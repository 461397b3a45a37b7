"""Programs from Slack: commands, sessions that people type into, envelopes and logs, in the running product.

| case | what happens |
|---|---|
| S01 | a command: its output, its exit code, its log as a file and its last lines |
| S02 | a command on the blocklist is refused in one line and not run |
| S03 | much output goes on in new messages, whole |
| S04 | Ctrl-C by `!stop` ends a command and all it started within 5 s |
| S05 | a session: begun without a word, typed into, interrupted, left |
| S06 | the worker dies under a command: said once, nothing is left of it, nothing runs again |
| S07 | Claude Code's envelopes are posted as it works and not again in its answer; its stream is recorded |
| S08 | Slack fails while a command runs: its log is complete, and its output comes when Slack is back |
| S09 | a program that prints an answer is an agent: asked, and asked again with a record of what was said |
| S10 | a command as Slack escapes it runs as it was typed, and no log, audit, status or page shows the escapes |
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from codebutler.workspace.api import Fault
from tests.e2e.house import DEADLINE_S, LOOK_S, House, house, whole_text
from tests.e2e.test_matrix import QUICK, claude, model_env, rehearsal
from tests.modelserver.server import ModelServer, Reply
from tests.programs import require

GONE_S = 5.0
PYTHON = {"prefix": "py", "binary": "/usr/bin/python3", "args": ["-i", "-q"], "mode": "interactive"}

HEADLESS = {
    "prefix": "ai",
    "binary": "/usr/bin/python3",
    "args": ["-c", "import sys; print('heard', sys.stdin.read().upper())", "-"],
    "mode": "headless",
}


def running(marker: str) -> list[str]:
    """The command lines of live processes that have ``marker`` as an argument."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if marker.encode() in words:
                found.append(b" ".join(words).decode())
    return found


async def test_s01_s02_s03_s04_s08_commands(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        await _s01_a_command(built, channel)
        await _s10_escapes(built, channel)
        await _s02_the_blocklist(built, channel)
        await _s03_much_output(built, channel)
        await _s04_ctrl_c(built, channel)
        await _s08_slack_fails(built, channel, git_repo)


async def _s01_a_command(built: House, channel: str) -> None:
    ts = await built.say(channel, "run: stty size; printf '1%%\\r99%%\\n'; exit 3")
    assert await built.outcome(channel, ts) == "x"
    (message,) = built.answers(channel, ts)
    text = message["text"]
    assert text.startswith("```\n50 220\n99%\n```\n❌ exit code 3 · ")
    session = text.partition("!logs ")[2].rstrip("`")
    asked = await built.say(channel, "!logs", ts)
    told = await built.answer(channel, ts, session, after=asked)
    assert "📎" in told["text"]

    def uploaded() -> list[str] | None:
        names = [file["name"] for message in built.answers(channel, ts) for file in message.get("files", [])]
        return names or None

    assert await built.until("the log", uploaded) == [f"{session}.log"]
    asked = await built.say(channel, f"!logs {session}", ts)
    await built.answer(channel, ts, session, after=asked)
    asked = await built.say(channel, "!logs tail 2", ts)
    assert (await built.answer(channel, ts, "50 220", after=asked))["text"] == "```\n50 220\n99%\n```"


async def _s10_escapes(built: House, channel: str) -> None:
    ts = await built.say(channel, "run: ls nosuch 2&gt;&amp;1; echo '&lt;a&gt;'")
    message = await built.answer(channel, ts, "exit code 0")
    assert "cannot access" in message["text"]
    assert "&lt;a&gt;" in message["text"], "which Slack shows as <a>"
    told = await built.say(channel, "!list")
    await built.answer(channel, told, "2&gt;&amp;1")
    records = (built.home / "logs" / "audit.jsonl").read_text(encoding="utf-8")
    for kept in (built.log(), records):
        assert "ls nosuch 2>&1; echo '<a>'" in kept
        assert "&amp;" not in kept


async def _s02_the_blocklist(built: House, channel: str) -> None:
    ts = await built.say(channel, "!c rm -rf /")
    refusal = await built.answer(channel, ts, "on the blocklist")
    assert "\n" not in refusal["text"]
    assert built.reactions(channel, ts) <= {"x"}


async def _s03_much_output(built: House, channel: str) -> None:
    ts = await built.say(channel, "!c seq 1 2000")
    assert await built.outcome(channel, ts) == "white_check_mark"
    said = built.answers(channel, ts)
    numbers = [line for message in said for line in message["text"].splitlines() if line.isdigit()]
    assert numbers == [str(number) for number in range(1, 2001)]
    assert len(said) == 3


async def _s04_ctrl_c(built: House, channel: str) -> None:
    ts = await built.say(channel, "!c grep SigIgn /proc/self/status")
    ignored = int((await built.answer(channel, ts, "SigIgn:"))["text"].split("SigIgn:")[1].split()[0], 16)
    assert not ignored & 1 << signal.SIGINT - 1, (
        "what is ignored at its start no program can be told by Ctrl-C"
    )
    marker = f"86{os.getpid()}"
    ts = await built.say(channel, f"!c (setsid sleep {marker} &); echo begun; sleep {marker}")
    await built.answer(channel, ts, "begun")
    assert len(running(marker)) >= 2
    async with asyncio.timeout(GONE_S):
        await built.say(channel, "!stop", ts)
        assert await built.outcome(channel, ts) == "octagonal_sign"
    assert running(marker) == []
    assert "stopped" in built.answers(channel, ts)[0]["text"]


async def _s08_slack_fails(built: House, channel: str, repo: Path) -> None:
    for method in ("chat.postMessage", "chat.update"):
        built.workspace.faults.add(Fault(method=method, kind="status", status=503, times=1000))
    logs = repo / ".codebutler" / "logs" / "sessions"
    earlier = set(logs.iterdir())
    ts = built.workspace.say(channel, "!c seq 1 100")
    async with asyncio.timeout(DEADLINE_S):
        while not any(b"--- session" in file.read_bytes() for file in set(logs.iterdir()) - earlier):  # noqa: ASYNC110 - nobody would set an event
            await asyncio.sleep(LOOK_S)
    (log,) = set(logs.iterdir()) - earlier
    assert log.read_bytes().startswith(b"".join(b"%d\n" % number for number in range(1, 101)))
    assert built.answers(channel, ts) == []
    built.workspace.faults.clear()
    assert await built.outcome(channel, ts) == "white_check_mark"
    assert "\n99\n100\n" in built.answers(channel, ts)[0]["text"]


async def test_s05_s09_a_session_and_an_agent_of_the_configuration(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK, commands=[PYTHON, HEADLESS])
        await built.supervise()
        ts = await built.say(channel, "py:")
        await built.answer(channel, ts, "Session `py` started")
        await built.answer(channel, ts, "&gt;&gt;&gt;")
        typed = await built.say(channel, "6 * 7", ts)
        assert await built.outcome(channel, typed) == "white_check_mark"
        await built.answer(channel, ts, "42", after=typed)
        typed = await built.say(channel, "import time; time.sleep(300)", ts)
        assert await built.outcome(channel, typed) == "white_check_mark"
        await built.say(channel, "!stop", ts)
        await built.answer(channel, ts, "KeyboardInterrupt")
        left = await built.say(channel, "exit()", ts)
        assert await built.outcome(channel, ts) == "white_check_mark"
        await built.answer(channel, ts, "Session ended · exit code 0", after=left)
        assert built.reactions(channel, left) == {"white_check_mark"}
        await _s09_a_program_as_an_agent(built, channel)


async def _s09_a_program_as_an_agent(built: House, channel: str) -> None:
    ts = await built.say(channel, "ai: the first thing")
    await built.answer(channel, ts, "heard THE FIRST THING")
    assert await built.outcome(channel, ts) == "white_check_mark"
    again = await built.say(channel, "ai: and the second", ts)
    answer = whole_text(await built.answer(channel, ts, "AND THE SECOND", after=again))
    assert "HEARD THE FIRST THING" in answer
    assert await built.outcome(channel, again) == "white_check_mark"


async def test_s06_a_worker_dies_under_a_command(tmp_path: Path, git_repo: Path) -> None:
    marker = f"87{os.getpid()}"
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        ts = await built.say(channel, f"run: echo once >> count; echo begun; sleep {marker}")
        await built.answer(channel, ts, "begun")
        assert running(marker)
        status = await built.status()
        assert status is not None
        os.kill(status["repos"][0]["worker"]["pid"], signal.SIGKILL)
        await built.answer(channel, ts, "The machine stopped while")
        assert await built.outcome(channel, ts) == "x"
        assert running(marker) == []
        assert (git_repo / "count").read_text() == "once\n"
        log = next((git_repo / ".codebutler" / "logs" / "sessions").iterdir())
        assert log.read_bytes() == b"begun\n"


async def test_s07_envelopes_of_the_real_agent(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        words = "Reading.\n<<<SLACK:progress>>>found **3** things<<<end_slack>>>\nAll is well."
        model.play(Reply(words))
        ts = await built.say(channel, "look around")
        posted = await built.answer(channel, ts, "🔄 found **3** things")
        answer = await built.answer(channel, ts, "_tokens:")
        assert answer["ts"] > posted["ts"]
        assert "All is well." in whole_text(answer)
        assert "found" not in whole_text(answer)
        assert await built.outcome(channel, ts) == "white_check_mark"
        # Its program may still be ending: then the last line is not there yet, but all it said is.
        asked = await built.say(channel, "!logs tail 9", ts)
        await built.answer(channel, ts, '"type":"result"', after=asked)

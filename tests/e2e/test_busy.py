"""While Claude Code is at work: stopping, steering, waiting in line. With the real program.

| case | what happens |
|---|---|
| W01 | !stop ends the turn and its whole tree within five seconds; the next message goes on with the same session |
| W02 | `agent.busy` "steer": a reply reaches the running turn; its message ends with it |
| W03 | who waits sees the place in line, moves up, and is answered in the own thread; no process outlives its turn |
| W04 | `agent.isolation` "worktree": a thread is answered while the agent of another one works, each in a tree of its
    own, where it goes on after a kill, and where programs and `!undo` look |
| W05 | `!merge` merges a thread; another is told of the same file, and dropped by `!discard` and its button, pressed
    after a kill |
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

from codebutler_worker.conversation.turn import SESSION_LOST
from tests.e2e.house import House, house, whole_text
from tests.modelserver.server import Call, ModelServer, Reply
from tests.programs import require

STOPPED_S = 5.0


async def claude(built: House, repo: Path, busy: str = "queue") -> str:
    require("bwrap")
    binary = require("claude")
    agent = {"debounceSeconds": 0, "default": "claude", "busy": busy}
    channel = await built.add_repo(repo, "sample", agent=agent, claude={"binary": str(binary)})
    await built.supervise()
    return channel


def model_env(model: ModelServer) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-ant-api03-not-a-real-key"}


def bash(command: str) -> tuple[Call, ...]:
    return (Call("Bash", {"command": command, "description": "a command", "timeout": 400_000}),)


def processes(word: str) -> list[str]:
    """The command lines of live processes that contain ``word``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line:
            found.append(line)
    return found


async def eventually(within_s: float, true: Callable[[], bool]) -> None:
    """Wait for what processes do and tell nobody."""
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)


async def test_w01_a_stopped_turn_leaves_nothing_but_its_session(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        sleeper = "nohup setsid python3 -c 'import time; time.sleep(600)' & touch begun; sleep 300"
        model.play(Reply("I remember quincunx.", bash(sleeper)))
        ts = await built.say(channel, "remember the word quincunx")
        await eventually(30, (git_repo / "begun").exists)
        stop_s = time.monotonic()
        await built.say(channel, "!stop", thread_ts=ts)
        await eventually(STOPPED_S, lambda: not processes(str(git_repo)))
        assert time.monotonic() - stop_s < STOPPED_S
        assert await built.outcome(channel, ts) == "octagonal_sign"
        model.script[:] = [Reply("It was quincunx.")]
        again = await built.say(channel, "which word was it?", thread_ts=ts)
        await built.answer(channel, ts, "It was quincunx.")
        assert await built.outcome(channel, again) == "white_check_mark"
        assert "remember the word quincunx" in model.said()
        assert not [
            one for one in built.answers(channel, ts) if SESSION_LOST.partition(" ")[2] in whole_text(one)
        ]


async def test_w02_a_reply_is_told_to_the_agent_at_work(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo, busy="steer")
        model.play(
            Reply("On it.", bash("touch begun; while [ ! -e go ]; do sleep 0.05; done")),
            *[Reply("Blue it is.")] * 3,
        )
        ts = await built.say(channel, "paint it red")
        await eventually(30, (git_repo / "begun").exists)
        second = await built.say(channel, "no, blue", thread_ts=ts)
        await built.until("the reply at work", lambda: built.reactions(channel, second) == {"eyes"} or None)
        (git_repo / "go").touch()
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert await built.outcome(channel, second) == "white_check_mark"
        assert any("no, blue" in model.said(number) for number in range(len(model.requests)))
        assert len([one for one in built.answers(channel, ts) if "_tokens:" in whole_text(one)]) == 1


async def test_w03_who_waits_moves_up_in_the_own_thread(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        model.play(Reply("", bash("touch begun; while [ ! -e go ]; do sleep 0.05; done")), Reply("One."))
        model.play(Reply("", bash("while [ ! -e on ]; do sleep 0.05; done")), Reply("Two."), Reply("Three."))
        first = await built.say(channel, "one")
        await eventually(30, (git_repo / "begun").exists)
        second = await built.say(channel, "two")
        third = await built.say(channel, "three")
        await built.answer(channel, second, "Next in line.")
        await built.answer(channel, third, "2nd in line.")
        await built.answer(channel, first, "begun")
        (git_repo / "go").touch()
        await built.answer(channel, first, "One.")
        await built.answer(channel, second, "🔧 `Bash")
        await built.answer(channel, third, "Next in line.")
        (git_repo / "on").touch()
        await built.answer(channel, second, "Two.")
        await built.answer(channel, third, "Three.")
        assert await built.outcome(channel, third) == "white_check_mark"
        await eventually(STOPPED_S, lambda: not processes(str(git_repo)))
        for ts in (first, second, third):
            assert len(built.answers(channel, ts)) == 2


async def test_w04_threads_side_by_side_in_worktrees(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    agent = {"debounceSeconds": 0, "default": "rehearsal", "isolation": "worktree", "parallelTurns": 2}
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=agent)
        await built.supervise()
        slow = await built.say(channel, "wait 600 seconds")
        await built.until("the slow one at work", lambda: "eyes" in built.reactions(channel, slow))
        quick = await built.say(channel, "create made.txt with one")
        assert await built.outcome(channel, quick) == "white_check_mark"
        assert await built.answer(channel, quick, "its own worktree, on branch `codebutler/create-")
        assert built.reactions(channel, slow) == {"eyes"}
        assert not (git_repo / "made.txt").exists()

        await built.stop(signal.SIGKILL)
        await built.supervise()
        again = await built.say(channel, "append two to made.txt", quick)
        assert await built.outcome(channel, again) == "white_check_mark"
        ran = await built.say(channel, "run: cat made.txt", quick)
        assert await built.outcome(channel, ran) == "white_check_mark"
        assert "two" in whole_text(built.answers(channel, quick, ran)[-1])
        # What a turn changed is known a moment after its answer.
        await built.until_status(lambda status: status["repos"][0]["turns"]["running"] == 0)
        await built.say(channel, "!undo", quick)
        card = await built.answer(channel, quick, "Undo “append two")
        [button] = [each for each in card["blocks"][-1]["elements"] if each["action_id"] == "codebutler.undo"]
        await built.click(channel, card["ts"], "codebutler.undo", button["value"])
        await built.answer(channel, quick, "Undid changes to 1 file")
        after = await built.say(channel, "run: cat made.txt", quick)
        assert await built.outcome(channel, after) == "white_check_mark"
        assert "two" not in whole_text(built.answers(channel, quick, after)[-1])
        assert not (git_repo / "made.txt").exists()


async def test_w05_a_thread_is_merged_and_another_one_discarded(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    agent = {"debounceSeconds": 0, "default": "rehearsal", "isolation": "worktree", "parallelTurns": 2}
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=agent)
        await built.supervise()
        one = await built.say(channel, "create made.txt with one")
        assert await built.outcome(channel, one) == "white_check_mark"
        two = await built.say(channel, "create made.txt with two")
        assert await built.outcome(channel, two) == "white_check_mark"
        told = await built.answer(channel, two, "Also changed in")
        assert "made.txt" in whole_text(told)

        await built.say(channel, "!merge", one)
        await built.answer(channel, one, "not committed yet:")
        assert not (git_repo / "made.txt").exists()
        await built.say(channel, "!merge Make a file", one)
        await built.answer(channel, one, "1 file changed")
        assert "one" in (git_repo / "made.txt").read_text()

        await built.say(channel, "!discard", two)
        card = await built.answer(channel, two, "Discard the worktree of this thread")
        await built.stop(signal.SIGKILL)
        await built.supervise()
        [button] = [
            each for each in card["blocks"][-1]["elements"] if each["action_id"] == "codebutler.discard"
        ]
        await built.click(channel, card["ts"], "codebutler.discard", button["value"])
        await built.answer(channel, two, "restores its files and commits")
        listed = await built.say(channel, "!worktrees")
        text = whole_text(await built.answer(channel, listed, "1 worktree, compared with"))
        assert "create made.txt with one" in text
        assert "merged" in text

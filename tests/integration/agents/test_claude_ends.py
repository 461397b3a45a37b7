"""How turns of the real Claude Code end, and what of them does not outlive them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from codebutler_worker.agents.backend import (
    Text,
    ToolUse,
)
from codebutler_worker.agents.process import TimeLimits
from tests.claude_desk import Desk, bash, last, replace_section, until
from tests.modelserver.server import Call, Reply

SLEEP = "python3 -c 'import time; time.sleep(300)'"


async def eventually(true: Callable[[], bool], deadline_s: float = 20) -> None:
    """Wait for what a foreign process does and tells nobody."""
    async with asyncio.timeout(deadline_s):
        while not true():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)


def is_gone(pid: int) -> bool:
    """No process has this pid (a zombie, which its new parent has yet to reap, counts as gone)."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


async def gone(pid: int) -> None:
    await eventually(lambda: is_gone(pid), 5)


async def appears(path: Path) -> int:
    """Wait for a file with a pid in it."""
    await eventually(lambda: path.exists() and path.read_text().strip() != "")
    return int(path.read_text())


async def test_a_stop_in_mid_tool_ends_the_turn_and_the_tool(desk: Desk) -> None:
    desk.model.play(Reply("", (bash(f"echo $$ > pid; {SLEEP}"),)))
    events = desk.backend.start(desk.turn("sleep"))
    await until(events, ToolUse)
    pid = await appears(desk.repo / "pid")
    async with asyncio.timeout(5):
        stop = asyncio.create_task(desk.backend.stop("t1"))
        rest = [event async for event in events]
        await stop
    assert last(rest).reason == "stopped"
    await gone(pid)


async def test_closing_the_stream_in_mid_tool_leaves_nothing(desk: Desk) -> None:
    desk.model.play(Reply("", (bash(f"echo $$ > pid; {SLEEP}"),)))
    events = desk.backend.start(desk.turn("sleep"))
    await until(events, ToolUse)
    pid = await appears(desk.repo / "pid")
    [turn] = desk.backend._live.values()
    assert turn is not None
    async with asyncio.timeout(5):
        await events.aclose()
    await gone(pid)
    await gone(turn.process.pid)
    assert not desk.backend._live


async def test_a_killed_process_is_a_failed_turn_and_its_tool_dies_too(desk: Desk) -> None:
    desk.model.play(Reply("", (bash(f"echo $$ > pid; {SLEEP}"),)))
    events = desk.backend.start(desk.turn("sleep"))
    await until(events, ToolUse)
    pid = await appears(desk.repo / "pid")
    [turn] = desk.backend._live.values()
    assert turn is not None
    os.kill(turn.process.pid, 9)
    end = last([event async for event in events])
    await gone(pid)
    assert (end.ok, end.reason) == (False, "failed")
    assert "-9" in end.text


async def test_max_turns(desk: Desk) -> None:
    short = desk.with_settings(replace_section(desk, max_turns=1))
    desk.model.play(Reply("", (bash("true"),)), Reply("never"))
    end = last(await short.run("work"))
    assert (end.ok, end.reason) == (False, "max_turns")
    await short.backend.close()


async def test_a_background_command_is_told_before_the_turn_ends(desk: Desk) -> None:
    call = Call("Bash", {"command": "sleep 0.5", "description": "bg", "run_in_background": True})
    desk.model.play(Reply("", (call,)), Reply("started"), Reply("it has ended"))
    events = await desk.run("start it")
    texts = [event.text for event in events if isinstance(event, Text)]
    assert texts == ["started", "it has ended"]
    assert last(events).text == "started\n\nit has ended"


async def test_a_background_command_left_over_is_cut_off_after_its_grace(desk: Desk) -> None:
    impatient = desk.with_settings(desk.backend._settings, TimeLimits(600, background_s=0.1))
    command = f"echo $$ > pid; {SLEEP}"
    call = Call("Bash", {"command": command, "description": "bg", "run_in_background": True})
    desk.model.play(Reply("", (call,)), Reply("started"))
    end = last(await impatient.run("start it"))
    assert (end.ok, end.text) == (True, "started")
    await gone(await appears(desk.repo / "pid"))


async def test_the_time_limit_ends_a_turn(desk: Desk) -> None:
    hasty = desk.with_settings(desk.backend._settings, TimeLimits(5))
    desk.model.play(Reply("", (bash(f"echo $$ > pid; {SLEEP}"),)))
    end = last(await hasty.run("sleep"))
    assert (end.ok, end.reason) == (False, "timeout")
    await gone(await appears(desk.repo / "pid"))


async def test_a_silent_service_is_noticed(desk: Desk) -> None:
    hasty = desk.with_settings(desk.backend._settings, TimeLimits(600, stall_s=1.5))
    desk.model.play(Reply("never", hold=True))
    assert last(await hasty.run("hello")).reason == "stalled"


async def test_no_process_outlives_its_turn(desk: Desk) -> None:
    desk.model.play(Reply("", (bash("echo $PPID > pid"),)), Reply("one"))
    assert last(await desk.run("hello")).ok
    assert is_gone(await appears(desk.repo / "pid"))

"""The Claude Code backend against a program of ours that misbehaves as no real one can be made to."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codebutler.config.schema import ClaudeSection
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.agents.backend import AgentEvent, Finished, Started, Text, TurnRequest
from codebutler_worker.agents.claude.backend import ClaudeBackend
from codebutler_worker.agents.process import TimeLimits
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.sandbox.port import Launch, Sandbox, SandboxPolicy
from tests.turns import end
from tests.walls import NoWalls

# It plays one scene of ./script for each message it hears; a scene is a list of lines to write, or a sign.
PROGRAM = """#!{python} -I
import json, os, pathlib, signal, sys, time
if "--version" in sys.argv:
    print(pathlib.Path(__file__).with_name("version").read_text()); sys.exit()
script = pathlib.Path("script")
pathlib.Path("pid").write_text(str(os.getpid()))
open("starts", "a").write(json.dumps(sys.argv[-2:]) + chr(10))
for line in sys.stdin:
    heard = json.loads(line)
    if heard["type"] != "user":
        continue
    scenes = json.loads(script.read_text())
    script.write_text(json.dumps(scenes[1:]))
    for act in scenes[0]:
        if isinstance(act, dict):
            act.setdefault("session_id", sys.argv[-1])
            print(json.dumps(act), flush=True)
        elif act == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)
        elif act == "flood":
            for _ in range(20000): print('{{"type": "novelty"}}')
            sys.stdout.flush()
        elif act == "wide":
            print("x" * (17 * 2**20), flush=True)
        elif act == "half":
            sys.stdout.write('{{"type": "resu'); sys.stdout.flush(); os._exit(3)
        elif act == "daemon":
            os.system("(setsid sleep 300 >/dev/null 2>&1 & echo $! > daemon)")
        elif act == "heir":
            os.system("(setsid sleep 300 & echo $! > daemon)")
        elif act == "die":
            sys.stderr.write("it hurts" + chr(10)); sys.exit(9)
"""

OLD = "11111111-1111-4111-8111-111111111111"
INIT = {"type": "system", "subtype": "init"}
TEXT = {"type": "assistant", "message": {"content": [{"type": "text", "text": "hello"}]}}
RESULT = {"type": "result", "is_error": False, "result": "hello", "num_turns": 1}
EMPTY = {"type": "result", "is_error": False, "result": "", "num_turns": 0}
ANSWER = [INIT, TEXT, RESULT]


@dataclass
class Stage:
    backend: ClaudeBackend
    repo: Path

    def play(self, *scenes: list[Any]) -> None:
        (self.repo / "script").write_text(json.dumps(scenes))

    def starts(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.repo / "starts").read_text().splitlines()]

    def turn(self, name: str = "1", session_id: str | None = None) -> TurnRequest:
        return TurnRequest(
            turn_id=f"t{name}",
            conversation=f"c{name}",
            prompt="hi",
            workdir=self.repo,
            session_id=session_id,
        )

    async def run(self, name: str = "1", session_id: str | None = None) -> list[AgentEvent]:
        async with asyncio.timeout(30):
            return [event async for event in self.backend.start(self.turn(name, session_id))]


def backend_of(tmp_path: Path, sandbox: Sandbox | None = None, **settings: str) -> ClaudeBackend:
    section = ClaudeSection(binary=str(tmp_path / "claude"), **settings)  # type: ignore[arg-type]
    limits = TimeLimits(60, stall_s=2)
    return ClaudeBackend(section, AgentContext(sandbox or NoWalls(), SystemClock()), tmp_path, {}, limits)


@pytest.fixture
async def stage(tmp_path: Path, git_repo: Path) -> AsyncIterator[Stage]:
    program = tmp_path / "claude"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    (tmp_path / "version").write_text("2.1.328 (Claude Code)")
    backend = backend_of(tmp_path)
    yield Stage(backend, git_repo)
    await backend.close()


def is_gone(pid: int) -> bool:
    """No process has this pid (a zombie, which its new parent has yet to reap, counts as gone)."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def session_of(events: list[AgentEvent]) -> str:
    return next(event.session_id for event in events if isinstance(event, Started))


async def test_a_result_is_enough_though_the_process_stays_deaf(stage: Stage) -> None:
    stage.play([*ANSWER, "deaf"])
    events = stage.backend.start(stage.turn())
    heard = [await anext(events) for _ in range(4)]
    assert end(heard).ok
    pid = int((stage.repo / "pid").read_text())
    async with asyncio.timeout(5):
        assert [event async for event in events] == []
    assert is_gone(pid)


@pytest.mark.parametrize("noise", ["flood", "wide"])
async def test_noise_does_not_hide_the_answer(stage: Stage, noise: str) -> None:
    stage.play([INIT, noise, TEXT, RESULT])
    events = await stage.run()
    assert end(events).text == "hello"
    assert [event.text for event in events if isinstance(event, Text)] == ["hello"]


async def test_half_a_line_at_the_end_is_no_answer(stage: Stage) -> None:
    stage.play([INIT, TEXT, "half"])
    finished = end(await stage.run())
    assert (finished.ok, finished.reason) == (False, "failed")
    assert "exit code 3" in finished.text


async def test_a_crash_tells_why(stage: Stage) -> None:
    stage.play([INIT, "die"])
    assert end(await stage.run()).text.endswith("(exit code 9): it hurts")


async def test_a_hanging_program_is_stopped_though_it_ignores_signals(stage: Stage) -> None:
    stage.play([INIT, "deaf"])
    assert end(await stage.run()).reason == "stalled"


async def test_stopping_a_deaf_program_takes_less_than_five_seconds(stage: Stage) -> None:
    stage.play([INIT, "deaf"])
    events = stage.backend.start(stage.turn())
    assert isinstance(await anext(events), Started)
    async with asyncio.timeout(5):
        stop = asyncio.create_task(stage.backend.stop("t1"))
        rest = [event async for event in events]
        await stop
    assert end(rest).reason == "stopped"


async def test_a_stop_before_the_program_is_up_counts(stage: Stage) -> None:
    stage.play(ANSWER)
    events: list[AgentEvent] = []

    async def collect() -> None:
        events.extend([event async for event in stage.backend.start(stage.turn())])

    task = asyncio.create_task(collect())
    await asyncio.sleep(0)
    await stage.backend.stop("t1")
    async with asyncio.timeout(10):
        await task
    assert end(events).reason == "stopped"


@pytest.mark.parametrize("poison", [[INIT, EMPTY], ["die"], [INIT, "half"]])
async def test_a_session_that_yields_nothing_is_replaced_once(stage: Stage, poison: list[Any]) -> None:
    stage.play(poison, ANSWER)
    events = await stage.run(session_id=OLD)
    assert end(events).ok
    assert [event.fresh for event in events if isinstance(event, Started)][-1]
    assert [words[0] for words in stage.starts()] == ["--resume", "--session-id"]


async def test_a_session_id_that_is_none_never_becomes_an_argument(stage: Stage) -> None:
    stage.play(ANSWER)
    events = await stage.run(session_id="--mcp-config=evil.json")
    assert end(events).ok
    assert [words[0] for words in stage.starts()] == ["--session-id"]


async def test_a_forged_session_id_is_not_believed(stage: Stage) -> None:
    stage.play([{**INIT, "session_id": "--evil"}, TEXT, RESULT])
    assert session_of(await stage.run()) == stage.starts()[0][1]


async def test_a_poisoned_fresh_session_is_not_tried_again(stage: Stage) -> None:
    stage.play(["die"], ["die"], ANSWER)
    assert end(await stage.run(session_id=OLD)).reason == "failed"
    assert len(stage.starts()) == 2


async def test_a_session_that_did_something_is_never_rerun(stage: Stage) -> None:
    stage.play([INIT, TEXT, "die"], ANSWER)
    assert end(await stage.run(session_id=OLD)).reason == "failed"
    assert len(stage.starts()) == 1


async def test_the_answer_does_not_wait_for_the_end_of_its_process(stage: Stage) -> None:
    stage.play([*ANSWER, "deaf"])
    began_s = time.monotonic()
    async for event in stage.backend.start(stage.turn()):
        if isinstance(event, Finished):
            answered_s = time.monotonic() - began_s
    assert time.monotonic() - began_s - answered_s > 1.5


async def test_what_a_process_says_after_its_result_is_nobodys(stage: Stage) -> None:
    stage.play([*ANSWER, INIT, TEXT, RESULT], ANSWER)
    first = await stage.run()
    again = await stage.run(session_id=session_of(first))
    assert [type(event) for event in again] == [type(event) for event in first]
    assert [words[0] for words in stage.starts()] == ["--session-id", "--resume"]


async def test_a_turn_that_is_let_go_after_its_answer_leaves_nothing(stage: Stage) -> None:
    stage.play([*ANSWER, "deaf"], ANSWER)
    events = stage.backend.start(stage.turn())
    heard = [await anext(events) for _ in range(4)]
    pid = int((stage.repo / "pid").read_text())
    async with asyncio.timeout(5):
        await events.aclose()
    assert is_gone(pid)
    assert end(await stage.run(session_id=session_of(heard))).ok


async def test_a_session_is_free_only_when_its_process_is_gone(stage: Stage) -> None:
    stage.play([*ANSWER, "deaf"], ANSWER)
    events = stage.backend.start(stage.turn())
    heard = [await anext(events) for _ in range(4)]
    pid = int((stage.repo / "pid").read_text())
    leaving = asyncio.ensure_future(events.aclose())
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert not is_gone(pid)
    assert end(await stage.run(session_id=session_of(heard))).ok
    assert is_gone(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_a_daemon_does_not_outlive_its_turn(stage: Stage) -> None:
    stage.play([INIT, "daemon", TEXT, RESULT], ANSWER)
    assert end(await stage.run()).ok
    assert is_gone(int((stage.repo / "daemon").read_text()))
    assert end(await stage.run(session_id=stage.starts()[0][1])).ok
    assert [words[0] for words in stage.starts()] == ["--session-id", "--resume"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_what_a_dead_program_left_behind_does_not_hold_up_the_answer(stage: Stage) -> None:
    tool = {"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": "make"}}
    stage.play([INIT, {"type": "assistant", "message": {"content": [tool]}}, "heir", "die"])
    async with asyncio.timeout(20):
        assert end(await stage.run()).text.endswith("(exit code 9): it hurts")
    assert is_gone(int((stage.repo / "daemon").read_text()))


async def test_another_conversation_may_take_a_session_over(stage: Stage) -> None:
    stage.play(ANSWER, ANSWER)
    session = session_of(await stage.run("1"))
    assert end(await stage.run("2", session)).ok
    assert stage.starts()[-1] == ["--resume", session]


async def test_a_missing_program_says_how_to_install_it(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "claude").unlink()
    finished = end(await stage.run())
    assert (finished.ok, finished.reason) == (False, "unavailable")
    assert "npm install" in finished.text


async def test_an_old_program_is_refused_and_looked_at_again_after_an_update(
    stage: Stage, tmp_path: Path
) -> None:
    stage.play(ANSWER)
    (tmp_path / "version").write_text("2.0.9 (Claude Code)")
    finished = end(await stage.run())
    assert (finished.reason, "too old" in finished.text) == ("unavailable", True)
    (tmp_path / "version").write_text("2.1.200 (Claude Code)")
    assert end(await stage.run()).ok


class Broken(NoWalls):
    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        raise SandboxUnavailableError("no walls today: install bubblewrap")


async def test_without_its_sandbox_nothing_is_started(stage: Stage, tmp_path: Path) -> None:
    finished = end([event async for event in backend_of(tmp_path, Broken()).start(stage.turn())])
    assert (finished.reason, finished.text) == ("unavailable", "no walls today: install bubblewrap")
    assert not (stage.repo / "starts").exists()

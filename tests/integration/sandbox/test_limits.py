"""Limits really hit, by each mechanism this machine has: control groups, and rlimits alone."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from codebutler.config.schema import ClaudeSection
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler_worker.agents.backend import Finished, ToolResult, TurnRequest
from codebutler_worker.agents.claude.backend import ClaudeBackend
from codebutler_worker.agents.rehearsal.actions import Tools
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.cgroups import ResourceLimits, Slot, find_slots, own_slots
from codebutler_worker.sandbox.limits import AgentSandbox, ControlGroup, Limiter
from codebutler_worker.sandbox.port import PREFIX, Launch, SandboxPolicy
from codebutler_worker.sandbox.process import AgentProcess
from codebutler_worker.tools.tool import ToolError
from tests.modelserver.server import Call, ModelServer, Reply
from tests.ordinary import give_away
from tests.programs import require
from tests.walls import as_it_is

MB = 2**20
PYTHON = f"{sys.base_prefix}/bin/python3"
HOG = "x = bytearray(256 * 2**20); print(len(x))"
# Holds what it can get, and tells when it gets no more.
BOMB = """
import os, time
born = 0
try:
    while born < 400:
        if os.fork() == 0:
            time.sleep(300)
        born += 1
except OSError:
    pass
print(born, flush=True)
time.sleep(300)
"""


def grouped(*controllers: str, limits: ResourceLimits) -> Limiter:
    """Limits held by control groups, or a skip that says which this machine lacks."""
    limiter = Limiter.detect(limits)
    for controller in controllers:
        if not limiter.holds(controller):
            pytest.skip(f"no control group with the {controller} controller can be made here")
    return limiter


def launch(argv: tuple[str, ...], cwd: Path, limiter: Limiter) -> Launch:
    return Launch(argv, {"PATH": os.environ["PATH"]}, cwd, limiter.enclose)


def groups_left() -> list[Path]:
    mine = f"{PREFIX}*-{os.getpid()}-*"
    return [path for slot in find_slots() for path in slot.directory.glob(mine)]


async def said(process: AgentProcess) -> list[str]:
    async with asyncio.timeout(30):
        return [line.decode() async for line in process.lines()]


async def first_line(process: AgentProcess) -> str:
    async with asyncio.timeout(30):
        async for line in process.lines():
            return line.decode()
    raise AssertionError(f"no line: {await process.last_words()}")


async def test_a_fork_bomb_is_held_and_gone_at_the_end(tmp_path: Path) -> None:
    limiter = grouped("pids", limits=ResourceLimits(processes=40))
    async with await AgentProcess(launch((PYTHON, "-c", BOMB), tmp_path, limiter)).start() as process:
        assert int(await first_line(process)) < 40
        assert "40 processes (sandbox.processes)" in process.limit_hit
        [group] = {path for path in groups_left() if (path / "pids.max").exists()}
        members = [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
        assert len(members) > 30
        # Others are not hindered meanwhile.
        other = await asyncio.create_subprocess_exec("true")
        assert await other.wait() == 0
    assert "40 processes" in process.limit_hit
    assert groups_left() == []


@pytest.mark.parametrize("walls", [True, False])
async def test_a_bomb_that_never_stops_forking_is_ended_in_time(git_repo: Path, walls: bool) -> None:
    require("bwrap")
    limiter = grouped("pids", limits=ResourceLimits(processes=100))
    sandbox = AgentSandbox(BwrapSandbox() if walls else as_it_is(), limiter)
    policy = SandboxPolicy(workdir=git_repo, home=git_repo.parent / "home", env={"PATH": "/usr/bin:/bin"})
    bomb = "exec 2>&1; b() { b | b & }; while :; do b; done"
    process = await AgentProcess(sandbox.wrap(("/bin/bash", "-c", bomb), policy)).start()
    assert "fork" in await first_line(process)
    before = time.monotonic()
    await process.stop(eof_s=0.3)
    assert time.monotonic() - before < 5
    assert "100 processes" in process.limit_hit
    assert groups_left() == []


async def test_a_fork_bomb_is_held_where_there_are_only_rlimits(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    limiter = Limiter(ResourceLimits(processes=40))
    sandbox = AgentSandbox(BwrapSandbox(), limiter)
    policy = SandboxPolicy(workdir=git_repo, home=tmp_path / "home", env={"PATH": "/usr/bin:/bin"})
    bomb = "for i in $(seq 200); do sleep 300 & echo $i; done; wait"
    async with await AgentProcess(sandbox.wrap(("/bin/sh", "-c", bomb), policy)).start() as process:
        lines = await said(process)
        assert "ork" in (wrote := await process.last_words()), wrote
        assert 20 < len(lines) < 40


async def test_a_memory_hog_is_killed_and_the_reason_is_known(tmp_path: Path) -> None:
    limiter = grouped("memory", limits=ResourceLimits(memory_bytes=64 * MB))
    async with await AgentProcess(launch((PYTHON, "-c", HOG), tmp_path, limiter)).start() as process:
        assert await said(process) == []
        assert await process.wait() == -9
        assert "64 MB of memory (sandbox.memoryMb)" in process.limit_hit
    assert groups_left() == []


async def test_memory_is_held_for_each_process_where_there_are_only_rlimits(tmp_path: Path) -> None:
    limiter = Limiter(ResourceLimits(memory_bytes=64 * MB))
    async with await AgentProcess(launch((PYTHON, "-c", HOG), tmp_path, limiter)).start() as process:
        assert await said(process) == []
        assert await process.wait() == 1
        assert "MemoryError" in await process.last_words()


async def test_no_private_directory_holds_more_than_the_memory_there_is(
    tmp_path: Path, git_repo: Path
) -> None:
    """They lie in memory, which no limit of a process counts."""
    require("bwrap")
    sandbox = AgentSandbox(BwrapSandbox(), Limiter(ResourceLimits(memory_bytes=16 * MB)))
    policy = SandboxPolicy(workdir=git_repo, home=tmp_path / "home", env={"PATH": "/usr/bin:/bin"})
    fill = 'for d in /tmp /var/tmp /run /dev/shm "$HOME"; do head -c 32M /dev/zero > $d/x; wc -c < $d/x; done; > /dev/x'
    async with await AgentProcess(sandbox.wrap(("/bin/sh", "-c", fill), policy)).start() as process:
        assert await said(process) == [str(16 * MB)] * 5
        assert await process.wait() != 0


@pytest.mark.parametrize("limiter", [Limiter.detect, Limiter], ids=["detected", "rlimits"])
async def test_a_file_of_100_gigabytes_stops_at_the_limit(tmp_path: Path, limiter: type[Limiter]) -> None:
    argv = ("dd", "if=/dev/zero", f"of={tmp_path}/huge", "bs=1M", "count=102400")
    started = launch(argv, tmp_path, limiter(ResourceLimits(file_bytes=4 * MB)))
    async with await AgentProcess(started).start() as process:
        await said(process)
        assert await process.wait() != 0
    assert (tmp_path / "huge").stat().st_size == 4 * MB


async def test_a_busy_loop_gets_its_share_of_processor_time(tmp_path: Path) -> None:
    limiter = grouped("cpu", limits=ResourceLimits(cpus=0.2))
    spin = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
    async with await AgentProcess(launch((PYTHON, "-c", spin), tmp_path, limiter)).start() as process:
        assert float(await first_line(process)) < 1.0


async def test_what_is_within_its_limits_does_not_notice_them(tmp_path: Path) -> None:
    limits = ResourceLimits(memory_bytes=512 * MB, processes=64, file_bytes=64 * MB, cpus=2)
    env = {"PATH": os.environ["PATH"], "ONE": "a b"}
    started = Launch(
        ("/bin/sh", "-c", 'echo "$ONE"; pwd; read x; exit $x'), env, tmp_path, Limiter.detect(limits).enclose
    )
    async with await AgentProcess(started).start() as process:
        await process.write_line(b"7")
        assert await said(process) == ["a b", str(tmp_path)]
        assert await process.wait() == 7
        assert process.limit_hit == ""
    assert groups_left() == []


async def test_a_missing_program_is_told_and_leaves_no_group(tmp_path: Path) -> None:
    limiter = Limiter.detect(ResourceLimits(processes=9))
    with pytest.raises(AgentUnavailableError, match="cannot start nothing-here"):
        await AgentProcess(launch(("/nothing-here",), tmp_path, limiter)).start()
    assert groups_left() == []


async def test_nothing_starts_if_the_limits_cannot_be_set(tmp_path: Path) -> None:
    nowhere = Slot(tmp_path / "gone", 2, ("pids",))
    limiter = Limiter(ResourceLimits(processes=9), (nowhere,))
    with pytest.raises(SandboxUnavailableError, match="limits cannot be set"):
        await AgentProcess(launch(("/bin/sh", "-c", f"echo > {tmp_path}/ran"), tmp_path, limiter)).start()
    assert not (tmp_path / "ran").exists()


async def test_nothing_runs_outside_a_group_that_cannot_be_joined(tmp_path: Path) -> None:
    # A directory whose "group" has no file to join by: the shell must not go on to the program.
    slot = Slot(tmp_path / "slot", 2, ())
    slot.directory.mkdir()
    limiter = Limiter(ResourceLimits(processes=9), (slot,))
    enclosure, argv = await limiter.enclose(("/bin/sh", "-c", f"echo > {tmp_path}/ran"))
    [group] = enclosure.directories
    (group / "cgroup.procs").mkdir()
    process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 126
    assert not (tmp_path / "ran").exists()


async def test_the_groups_of_a_dead_worker_are_swept_and_those_of_the_living_stay(tmp_path: Path) -> None:
    limiter = grouped("pids", limits=ResourceLimits(processes=9))
    living, _ = await limiter.enclose(("true",))
    space = Path("/proc/self/ns/pid").stat().st_ino
    name = f"{PREFIX}{space}-{os.getpid()}-1-0"
    dead = ControlGroup(tuple(slot.directory / name for slot in limiter.slots), ResourceLimits())
    for directory in dead.directories:
        directory.mkdir()
    left = await asyncio.create_subprocess_exec("sleep", "300")
    (dead.directories[0] / "cgroup.procs").write_text(str(left.pid))
    assert await limiter.sweep() == 1
    assert await left.wait() == -9
    assert not any(path.exists() for path in dead.directories)
    assert all(path.exists() for path in living.directories)
    await living.close()
    assert groups_left() == []


async def test_a_group_of_version_2_ends_whoever_left_the_family() -> None:
    membership, mounts = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
    slots = tuple(slot for slot in own_slots(membership, mounts) if slot.version == 2)
    if not slots or not os.access(slots[0].directory, os.W_OK):
        pytest.skip("no control group of version 2 can be made here")
    script = "setsid sleep 300 > /dev/null 2>&1 & echo $!"
    enclosure, argv = await Limiter(ResourceLimits(), slots).enclose(("/bin/sh", "-c", script))
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    [directory] = enclosure.directories
    assert (directory / "cgroup.procs").read_text() == output.decode()
    await enclosure.close()
    assert not directory.exists()


async def test_the_rehearsal_agent_tells_the_limit(tmp_path: Path, git_repo: Path) -> None:
    limiter = grouped("memory", limits=ResourceLimits(memory_bytes=2 * MB))
    (git_repo / "one-line").write_text("x" * 32 * MB)  # grep holds a whole line
    tools = Tools(AgentSandbox(as_it_is(), limiter), git_repo, tmp_path)
    with pytest.raises(ToolError, match="2 MB of memory"):
        await tools.search("a", ".")


class Cell:
    """The real Claude Code behind real walls and limits."""

    def __init__(self, model: ModelServer, tmp_path: Path, limits: ResourceLimits) -> None:
        home = tmp_path / "home"
        (home / ".claude").mkdir(parents=True)
        give_away(home)
        env = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-ant-dummy"}
        sandbox = AgentSandbox(BwrapSandbox(), grouped("memory", limits=limits))
        settings = ClaudeSection(binary=str(require("claude")))
        self.backend = ClaudeBackend(settings, AgentContext(sandbox, SystemClock()), home, env)

    async def run(self, repo: Path) -> tuple[list[str], Finished]:
        turn = TurnRequest(turn_id="t", conversation="c", prompt="go", workdir=repo)
        async with asyncio.timeout(60):
            events = [event async for event in self.backend.start(turn)]
        await self.backend.close()
        assert isinstance(events[-1], Finished)
        return [event.text for event in events if isinstance(event, ToolResult)], events[-1]


async def test_claude_survives_what_its_command_is_killed_for(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with ModelServer() as model:
        command = f"/usr/bin/python3 -c '{HOG.replace('256', '1500')}'; echo code $?"
        model.play(Reply("", (Call("Bash", {"command": command, "description": "a hog"}),)))
        model.play(Reply("It was killed."))
        results, finished = await Cell(model, tmp_path, ResourceLimits(memory_bytes=900 * MB)).run(git_repo)
    assert "code 137" in results[0]
    assert (finished.ok, finished.text) == (True, "It was killed.")
    assert groups_left() == []


async def test_a_turn_that_dies_of_its_limit_says_so(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with ModelServer() as model:
        model.play(Reply("Never heard."))
        _, finished = await Cell(model, tmp_path, ResourceLimits(memory_bytes=40 * MB)).run(git_repo)
    assert (finished.ok, finished.reason) == (False, "failed")
    assert "40 MB of memory (sandbox.memoryMb)" in finished.text
    assert groups_left() == []

"""AgentProcess with real programs: nothing hangs, nothing is left, memory stays bounded."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path

import pytest

from codebutler.domain.errors import AgentUnavailableError
from codebutler.platform.system import this_system
from codebutler_worker.sandbox.port import Launch, owned_name, ownerless
from codebutler_worker.sandbox.process import MARK, AgentProcess, kill_orphans


def launch(script: str, cwd: Path) -> Launch:
    return Launch((sys.executable, "-u", "-c", script), {"PATH": os.environ["PATH"]}, cwd)


def shell(script: str, cwd: Path) -> Launch:
    return Launch(("/bin/sh", "-c", script), {"PATH": os.environ["PATH"]}, cwd)


async def first_line(process: AgentProcess) -> str:
    async with asyncio.timeout(10):
        async for line in process.lines():
            return line.decode()
    raise AssertionError("no line")


def dead(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


async def test_lines_go_in_and_out(tmp_path: Path) -> None:
    async with await AgentProcess(shell("cat", tmp_path)).start() as process:
        assert await process.write_line(b"one")
        assert await process.write_line(b"two")
        process.close_stdin()
        assert [line async for line in process.lines()] == [b"one", b"two"]
        assert await process.wait() == 0
    assert not await process.write_line(b"three")


async def test_a_program_that_cannot_be_started_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(AgentUnavailableError, match="cannot start nothing-here"):
        await AgentProcess(Launch(("/nothing-here",), {}, tmp_path)).start()


async def test_only_the_main_thread_starts_programs(tmp_path: Path) -> None:
    def elsewhere() -> None:
        asyncio.run(AgentProcess(shell("true", tmp_path)).start())

    with pytest.raises(RuntimeError, match="main thread"):
        await asyncio.to_thread(elsewhere)


async def test_it_has_a_session_of_its_own_and_only_its_environment(tmp_path: Path) -> None:
    script = "import os; print(os.getsid(0) == os.getpid(), sorted(os.environ))"
    async with await AgentProcess(launch(script, tmp_path)).start() as process:
        line = await first_line(process)
    assert line.startswith("True")
    assert "HOME" not in line


async def test_an_over_long_line_costs_no_memory_and_the_next_one_arrives(tmp_path: Path) -> None:
    script = "import sys; sys.stdout.write('x' * 5_000_000 + chr(10) + 'after' + chr(10))"
    async with await AgentProcess(launch(script, tmp_path), limit_bytes=1_000_000).start() as process:
        assert await first_line(process) == "after"


async def pieces(tmp_path: Path, *pieces: str, limit_bytes: int = 100) -> list[bytes]:
    """The lines of a program that writes these pieces one by one."""
    script = "; sleep 0.02; ".join(f"printf '{piece}'" for piece in pieces)
    async with await AgentProcess(shell(script, tmp_path), limit_bytes=limit_bytes).start() as process:
        return [line async for line in process.lines()]


async def test_lines_are_put_together_from_any_chunks(tmp_path: Path) -> None:
    assert await pieces(tmp_path, "a", r"b\nc\n\nd") == [b"ab", b"c", b"", b"d"]
    assert await pieces(tmp_path, r"a\n", r"b\n") == [b"a", b"b"]
    assert await pieces(tmp_path, "") == []


async def test_an_over_long_line_is_dropped_and_the_next_one_kept(tmp_path: Path) -> None:
    written = (r"1234\n12345", "678", r"9\nok\n123456\n", "12", "3456")
    assert await pieces(tmp_path, *written, limit_bytes=4) == [b"1234", b"ok"]


async def test_bytes_that_are_no_text_pass(tmp_path: Path) -> None:
    script = r"import sys; sys.stdout.buffer.write(b'\xff\x00\xfe\n\x1b[31m')"
    async with await AgentProcess(launch(script, tmp_path)).start() as process:
        assert [line async for line in process.lines()] == [b"\xff\x00\xfe", b"\x1b[31m"]


async def test_only_the_tail_of_stderr_is_kept(tmp_path: Path) -> None:
    script = "import sys; sys.stderr.write('a' * 1_000_000 + 'the end')"
    async with await AgentProcess(launch(script, tmp_path)).start() as process:
        assert await process.wait() == 0
        async with asyncio.timeout(5):
            await process._stderr_task
        said = await process.last_words()
        assert said.endswith("the end")
        assert len(said) == 8192


async def test_a_program_that_ignores_everything_is_killed(tmp_path: Path) -> None:
    script = (
        "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGINT)];"
        "print('up'); time.sleep(300)"
    )
    process = await AgentProcess(launch(script, tmp_path)).start()
    assert await first_line(process) == "up"
    async with asyncio.timeout(5):
        await process.stop(eof_s=0.1, term_s=0.1)
    assert process.returncode == -signal.SIGKILL


async def test_children_in_sessions_of_their_own_die_too(tmp_path: Path) -> None:
    script = "setsid sleep 300 & echo $!; wait"
    process = await AgentProcess(shell(script, tmp_path)).start()
    child = int(await first_line(process))
    await process.stop(eof_s=0.1, term_s=0.1)
    assert dead(child)


async def test_what_a_dead_program_left_behind_dies_too(tmp_path: Path) -> None:
    process = await AgentProcess(shell("setsid sleep 300 >/dev/null 2>&1 & echo $!", tmp_path)).start()
    child = int(await first_line(process))
    assert await process.wait() == 0
    assert not dead(child)
    await process.stop()
    assert dead(child)


async def test_the_programs_of_a_dead_worker_are_found_and_killed(tmp_path: Path) -> None:
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    env = {"PATH": os.environ["PATH"]}
    orphan = await asyncio.create_subprocess_exec(
        "sleep", "300", env=env | {MARK: f"codebutler-{this_system().pid_namespace()}-{gone.pid}-1-x"}
    )
    ours = await asyncio.create_subprocess_exec("sleep", "300", env=env | {MARK: owned_name()})
    try:
        assert await kill_orphans() >= 1
        assert await orphan.wait() == -signal.SIGKILL
        assert ours.returncode is None
    finally:
        ours.kill()
        await ours.wait()


@pytest.mark.parametrize(
    "mark", ["", "x", "1", "codebutler-1-999999999-1-x", "codebutler-1-9", "codebutler----", "1-2-3-4"]
)
def test_what_is_not_surely_ours_is_left_alone(mark: str) -> None:
    assert not ownerless(mark)


async def test_stopping_twice_and_at_once_is_harmless(tmp_path: Path) -> None:
    process = await AgentProcess(shell("sleep 300", tmp_path)).start()
    await asyncio.gather(process.stop(eof_s=0.1), process.stop(eof_s=0.1))
    await process.stop()
    assert process.returncode is not None


async def test_a_cancelled_stop_still_ends_the_program(tmp_path: Path) -> None:
    process = await AgentProcess(shell("sleep 300", tmp_path)).start()
    stopping = asyncio.create_task(process.stop(eof_s=0.2))
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    async with asyncio.timeout(5):
        await process.wait()
        await process.stop()
    assert dead(process.pid)


async def test_a_start_that_is_cancelled_leaves_no_program(tmp_path: Path) -> None:
    """Wherever the cancellation meets the start; a pipe that leaks is a warning, and that is an error."""
    script = f"echo $$ >> {tmp_path}/pids; exec cat"
    for steps in range(20):
        starting = asyncio.create_task(AgentProcess(shell(script, tmp_path)).start())
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        for process in await asyncio.gather(starting, return_exceptions=True):
            if isinstance(process, AgentProcess):
                await process.stop()
    gc.collect()
    pids = tmp_path / "pids"
    started = [int(line) for line in pids.read_text().split()] if pids.exists() else []
    assert all(dead(pid) for pid in started)

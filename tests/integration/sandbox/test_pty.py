"""Real programs under a real terminal, with and without walls."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from codebutler.domain.errors import AgentUnavailableError
from codebutler.platform.system import this_system
from codebutler_worker.sandbox.port import Launch, Sandbox, SandboxPolicy
from codebutler_worker.sandbox.pty import INTERRUPT, PtyProcess
from tests.walls import as_it_is, walled

DEADLINE_S = 20.0
SECRET_SECONDS = "86398"


class Terminal:
    """A program and everything it has written."""

    def __init__(self) -> None:
        self.written = b""
        self.recorded = bytearray()
        self.unrecorded = 0
        self.newline_returns: bool | None = None
        self.process: PtyProcess

    def take(self, data: bytes, newline_returns: bool) -> None:
        self.written += data
        self.newline_returns = newline_returns
        self.unrecorded = max(self.unrecorded, len(self.written) - len(self.recorded))

    def record(self, piece: memoryview) -> None:
        self.recorded += piece

    async def until(self, look: Callable[[bytes], bool]) -> None:
        """Wait for output that ``look`` likes."""
        async with asyncio.timeout(DEADLINE_S):
            while not look(self.written):
                await self.process.output.wait()
                self.process.output.clear()

    async def end(self) -> int | None:
        async with asyncio.timeout(DEADLINE_S):
            await self.process.ended.wait()
        return self.process.returncode


@pytest.fixture(params=["none", "bwrap"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return as_it_is() if request.param == "none" else walled()


@asynccontextmanager
async def running(sandbox: Sandbox, repo: Path, *argv: str) -> AsyncIterator[Terminal]:
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    home = repo.parent / "home"
    home.mkdir(exist_ok=True)
    policy = SandboxPolicy(workdir=repo, home=home, env=env, own_terminal=True)
    terminal = Terminal()
    launch = sandbox.wrap((*this_system().restores_signals, *argv), policy)
    async with await PtyProcess(launch, terminal.take, terminal.record).start() as process:
        terminal.process = process
        yield terminal


async def test_it_is_a_terminal_of_the_promised_size_and_the_exit_code_comes_back(
    sandbox: Sandbox, git_repo: Path
) -> None:
    script = "stty size; test -t 0 && test -t 1 && echo is-a-tty; tput cols; exit 3"
    async with running(sandbox, git_repo, "bash", "-c", script) as terminal:
        assert await terminal.end() == 3
    assert terminal.written.split() == [b"50", b"220", b"is-a-tty", b"220"]


async def test_ctrl_c_reaches_the_program_and_not_its_walls(sandbox: Sandbox, git_repo: Path) -> None:
    script = 'trap "echo caught; exit 7" INT; echo ready; while :; do sleep 0.1; done'
    async with running(sandbox, git_repo, "bash", "-c", script) as terminal:
        await terminal.until(lambda seen: b"ready" in seen)
        assert await terminal.process.write(INTERRUPT)
        assert await terminal.end() == 7
    assert b"caught" in terminal.written


async def test_an_interrupted_shell_goes_on(sandbox: Sandbox, git_repo: Path) -> None:
    async with running(sandbox, git_repo, "bash", "--norc", "-i") as terminal:
        # As it is typed it is not what the prompt looks like.
        await terminal.process.write(b"PS1=rea''dy:; sh -c 'echo start; exec sleep 300'\r")
        await terminal.until(lambda seen: b"start\n" in seen)
        await terminal.process.write(INTERRUPT)
        await terminal.until(lambda seen: b"ready:" in seen)
        await terminal.process.write(b"echo $((40 + 2))\r")
        await terminal.until(lambda seen: b"42" in seen)
        await terminal.process.write(b"exit 5\r")
        assert await terminal.end() == 5
    assert b"no job control" not in terminal.written


async def test_a_hidden_prompt_is_noticed(sandbox: Sandbox, git_repo: Path) -> None:
    async with running(sandbox, git_repo, "bash", "-c", "read -s -p Password: x") as terminal:
        await terminal.until(lambda seen: b"Password:" in seen)
        assert terminal.process.hides_typing
    async with running(sandbox, git_repo, "bash", "-c", "echo Name:; read x") as terminal:
        await terminal.until(lambda seen: b"Name:" in seen)
        assert not terminal.process.hides_typing


async def test_nothing_outlives_it(sandbox: Sandbox, git_repo: Path) -> None:
    script = f"nohup setsid sleep {SECRET_SECONDS} >/dev/null 2>&1 & echo begun"
    async with running(sandbox, git_repo, "bash", "-c", script) as terminal:
        assert await terminal.end() == 0
    assert b"begun" in terminal.written
    assert survivors() == []


async def test_what_ignores_every_signal_is_gone_within_five_seconds(
    sandbox: Sandbox, git_repo: Path
) -> None:
    script = f'trap "" INT HUP TERM QUIT; echo stubborn; while :; do sleep {SECRET_SECONDS}; done'
    async with running(sandbox, git_repo, "bash", "-c", script) as terminal:
        await terminal.until(lambda seen: b"stubborn" in seen)
        began_s = time.monotonic()
        await terminal.process.stop()
        assert time.monotonic() - began_s < 5
    assert survivors() == []


async def test_the_last_words_before_the_end_are_not_lost(sandbox: Sandbox, git_repo: Path) -> None:
    async with running(sandbox, git_repo, "bash", "-c", "seq 1 20000; echo the-end") as terminal:
        await terminal.end()
    assert terminal.written.split() == [str(number).encode() for number in range(1, 20001)] + [b"the-end"]


async def test_a_flood_is_recorded_whole_before_anything_else_sees_it(
    sandbox: Sandbox, git_repo: Path
) -> None:
    async with running(sandbox, git_repo, "bash", "-c", "seq 1000000; sleep 0.1; seq 7") as terminal:
        assert await terminal.end() == 0
    assert terminal.recorded == b"".join(b"%d\n" % n for n in (*range(1, 1_000_001), *range(1, 8)))
    assert terminal.written == terminal.recorded
    assert terminal.unrecorded == 0


@pytest.mark.parametrize(("mode", "returns"), [("", True), ("stty -onlcr; ", False), ("stty raw; ", True)])
async def test_what_is_written_comes_as_it_is_and_newlines_return_unless_switched_off(
    sandbox: Sandbox, git_repo: Path, mode: str, returns: bool
) -> None:
    async with running(sandbox, git_repo, "bash", "-c", rf"{mode}printf 'one\ntwo\r\n\t\033[A'") as terminal:
        assert await terminal.end() == 0
    assert terminal.written == b"one\ntwo\r\n\t\x1b[A"
    assert terminal.newline_returns is returns


async def test_a_program_that_does_not_read_is_told_apart(git_repo: Path) -> None:
    script = "stty -icanon; echo ready; sleep 60"
    async with running(as_it_is(), git_repo, "bash", "-c", script) as terminal:
        await terminal.until(lambda seen: b"ready" in seen)
        assert not await terminal.process.write(b"x" * 200_000)


async def test_a_program_that_is_not_there_is_said(git_repo: Path) -> None:
    launch = Launch(("/nowhere/at/all",), {"PATH": "/usr/bin:/bin"}, git_repo / "missing")
    with pytest.raises(AgentUnavailableError, match="cannot start all"):
        await PtyProcess(launch, lambda _data, _returns: None).start()


def survivors() -> list[str]:
    pgrep = shutil.which("pgrep")
    assert pgrep
    found = subprocess.run(
        [pgrep, "-f", f"^sleep {SECRET_SECONDS}"], capture_output=True, text=True, check=False
    )
    return [pid for pid in found.stdout.split() if int(pid) != os.getpid()]

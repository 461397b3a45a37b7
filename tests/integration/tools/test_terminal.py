"""The persistent terminal: state is kept, nothing is waited for too long, nothing is left behind."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.sandbox.process import descendants
from codebutler_worker.tools.running import RUN_TERMINAL_COMMAND
from codebutler_worker.tools.tool import Context, Result
from tests.integration.tools.conftest import call

TOOL = RUN_TERMINAL_COMMAND


async def run(context: Context, command: str = "", **more: object) -> Result:
    return await call(TOOL, context, json.dumps({"command": command, "wait_s": 60, **more}))


async def test_state_is_kept_from_call_to_call(context: Context) -> None:
    first = await run(context, "mkdir deep; cd deep; export A='b c'; f() { echo \"f:$1\"; }")
    assert (first.text, first.exit_code) == (f"(exit code 0, in {context.workdir}/deep)", 0)
    second = await run(context, 'pwd; echo "$A"; f x\nfalse')
    assert second.text == f"{context.workdir}/deep\nb c\nf:x\n(exit code 1, in {context.workdir}/deep)"


async def test_whatever_is_asked_for_the_shell_answers_and_goes_on(context: Context) -> None:
    for command in ("if", "echo 'open", "eval '('", "$(", "exit_code_of_nothing", "set -e; false; true"):
        assert (await run(context, command)).exit_code is not None
    long = "echo '" + "x" * 20_000 + "' | wc -c"
    assert (await run(context, long)).text.startswith("20001\n")
    heredoc = "cat <<'END'\n$HOME `id` \\ ü\nEND"
    assert (await run(context, heredoc)).text.startswith("$HOME `id` \\ ü\n")


async def test_a_long_command_comes_back_early_and_is_listened_to_later(context: Context) -> None:
    begun = await run(context, "echo begun; read line; echo got $line", wait_s=1)
    assert (begun.text.splitlines()[-1], begun.exit_code) == ("(still running)", None)
    while "begun" not in begun.text:
        begun = await run(context, wait_s=1)
    assert "a command still runs" in (await run(context, "echo other")).text
    ended = await call(TOOL, context, json.dumps({"type": "words\n", "wait_s": 60}))
    assert ended.text == f"got words\n(exit code 0, in {context.workdir})"
    assert "no command runs" in (await run(context)).text


async def test_ctrl_c_interrupts_the_command_and_not_the_shell(context: Context) -> None:
    await run(context, "A=kept")
    # bash drops a Ctrl-C that comes while it starts a program: this one says that it has the terminal.
    begun = await run(context, "sh -c 'echo begun; exec sleep 300'; echo after", wait_s=0)
    while "begun" not in begun.text:
        begun = await run(context, wait_s=1)
    assert begun.exit_code is None
    stopped = await call(TOOL, context, json.dumps({"signal": "CTRL_C", "wait_s": 60}))
    assert stopped.exit_code == 130
    assert "after" not in stopped.text
    assert (await run(context, "echo $A")).text.startswith("kept\n")


async def test_whatever_a_program_did_to_the_terminal_the_next_command_is_not_shown(context: Context) -> None:
    for mode in ("sane", "raw -echo", "echo -isig"):
        await run(context, f"stty {mode}")
        assert (await run(context, "echo as ever")).text.startswith("as ever\n(")
        assert (await run(context, "sleep 60", wait_s=0)).exit_code is None
        assert (await run(context, signal="CTRL_C")).exit_code == 130


async def test_what_ignores_ctrl_c_is_ended_with_its_shell(context: Context) -> None:
    others = (await descendants(os.getpid())).keys()
    await run(context, "cd src; A=gone")
    heard = await run(context, "trap '' INT; echo deaf; while :; do sleep 1; done", wait_s=0)
    while "deaf" not in heard.text:
        heard = await run(context, wait_s=1)
    assert heard.exit_code is None
    ignored = await call(TOOL, context, json.dumps({"signal": "CTRL_C", "wait_s": 1}))
    assert ignored.exit_code is None
    assert (await call(TOOL, context, json.dumps({"signal": "KILL"}))).ok
    assert not (await descendants(os.getpid())).keys() - others
    assert (await run(context, 'echo "here:$A"; pwd')).text.startswith(f"here:\n{context.workdir}/src\n")
    assert (await call(TOOL, context, json.dumps({"signal": "KILL"}))).ok


async def test_a_shell_that_ends_is_replaced_where_it_stood(context: Context) -> None:
    await run(context, "cd src")
    ended = await run(context, "echo bye; exit 3")
    assert ended.exit_code == 3
    assert "bye" in ended.text
    assert "the shell ended" in ended.text
    assert (await run(context, "pwd")).text.startswith(f"{context.workdir}/src\n")


async def test_a_flood_is_cut_in_the_middle(context: Context) -> None:
    result = await run(context, "seq 1 300000")
    assert result.truncated
    assert result.text.startswith("1\n2\n3\n")
    assert f"300000\n(exit code 0, in {context.workdir})" in result.text
    assert len(result.text) < 30_000


async def test_what_draws_over_itself_is_shown_as_it_is_in_the_end(context: Context) -> None:
    result = await run(context, r"printf '10%%\r50%%\r100%%\n\033[31mred\033[0m\n'")
    assert result.text.startswith("100%\nred\n")


async def test_nothing_is_left_after_a_thousand_commands(context: Context, sandbox: Sandbox) -> None:
    others = (await descendants(os.getpid())).keys()
    await run(context, "true")
    before = held()
    for number in range(1000 if sandbox.name == "bwrap" else 50):
        result = await run(context, f"echo {number}")
        assert result.text.startswith(f"{number}\n")
    assert held() == before
    await run(context, "sleep 300 & disown; (setsid sleep 300 &)")
    await context.terminal.close()
    assert not (await descendants(os.getpid())).keys() - others


def held() -> tuple[int, int]:
    """Open files, and threads that read terminals; the loop's own threads come as they are needed."""
    readers = [thread for thread in threading.enumerate() if thread.name.startswith("terminal:")]
    return len(list(Path("/proc/self/fd").iterdir())), len(readers)

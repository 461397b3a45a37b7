"""run_terminal_command: a shell that keeps its state, and hands back what still runs."""

from __future__ import annotations

import shlex
from typing import Annotated, Literal

from msgspec import Meta

from codebutler_worker.tools.port import Arguments, Context, Described, Heard, Kind, Result, ToolError

LONGEST_S = 300
ENDED = "The shell and all that it ran was ended; the next command gets a new one."


class RunTerminalCommandArguments(Arguments, frozen=True):
    """What to do at the terminal: a command, something to type or a signal, or none of them to hear more."""

    command: Annotated[
        str, Meta(max_length=100_000, description="A bash command, several lines if need be.")
    ] = ""
    cwd: Annotated[str, Meta(max_length=4000, description="Go to this directory before the command.")] = ""
    type: Annotated[str, Meta(max_length=4000, description="Type this into the command that still runs.")] = (
        ""
    )
    signal: Annotated[
        Literal["", "CTRL_C", "KILL"],
        Meta(
            description="CTRL_C interrupts the command that still runs. KILL, for one that does not care, ends the "
            "whole shell: the next command gets a new one in the same directory, without its variables."
        ),
    ] = ""
    wait_s: Annotated[
        int, Meta(ge=0, le=LONGEST_S, description="Come back after so many seconds at most.")
    ] = 30


class RunTerminalCommand:
    """One terminal for each turn; the directory is kept from turn to turn."""

    name = "run_terminal_command"
    description = (
        "Run a command in a bash that keeps its directory and variables from call to call. "
        "A command that takes longer than wait_s goes on: call again without a command to read what it writes next, "
        "with `type` to answer it, or with signal CTRL_C to interrupt it."
    )
    kind: Kind = "command"
    arguments = RunTerminalCommandArguments

    def describe(self, args: RunTerminalCommandArguments) -> Described:
        """See the port."""
        if args.command:
            command = _command(args)
            return Described(" ".join(command.split()), "Bash", {"command": command})
        if args.type:
            return Described(f"types {args.type!r}", "Bash", {"type": args.type}, again=True)
        words = {"CTRL_C": "Ctrl-C", "KILL": "ends the shell"}.get(args.signal, "more output")
        return Described(words, "Bash", {"signal": args.signal}, again=True, kind="own")

    async def run(self, context: Context, args: RunTerminalCommandArguments) -> Result:
        """See the port. Raises ToolError where more than one thing is asked for at once."""
        if bool(args.command) + bool(args.type) + bool(args.signal) > 1:
            raise ToolError("give a command, or something to type, or a signal: not two at once")
        terminal = context.terminal
        if args.command:
            command = _command(args)
            return _result(command, await terminal.run(command, args.wait_s))
        if args.signal == "KILL":
            await terminal.close()
            return Result(ENDED)
        if args.type:
            await terminal.type(args.type)
        elif args.signal:
            await terminal.interrupt()
        return _result("", await terminal.more(args.wait_s))


def _command(args: RunTerminalCommandArguments) -> str:
    if args.cwd.strip() in ("", "."):
        return args.command
    return f"cd -- {shlex.quote(args.cwd)} && {{\n{args.command}\n}}"


def _result(command: str, heard: Heard) -> Result:
    state = "still running" if heard.exit_code is None else f"exit code {heard.exit_code}, in {heard.cwd}"
    return Result(
        f"{heard.text}\n({state})".lstrip("\n"),
        argv=("bash", "-c", command) if command else (),
        exit_code=heard.exit_code,
        truncated=heard.truncated,
        container=heard.container,
    )

"""Tools that run programs: run_terminal_command, bash (the strict variant), use_skill."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from codebutler.config.skills import Skill
from codebutler_worker.skills import Library
from codebutler_worker.tools.programs import ProgramOutput, shorten_output
from codebutler_worker.tools.shell import ShellOutput
from codebutler_worker.tools.tool import Arguments, CallDescription, Context, Result, Tool, ToolError

BASH_BYTES = 256 * 2**10
OPERATORS = "();<>|&"

SKILL_BYTES = 64 * 2**10
SKILL_LIMIT_S = 60.0
DESCRIBED_CHARS = 200


class _TerminalCommand(Arguments, frozen=True):
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
    wait_s: Annotated[int, Meta(ge=0, le=300, description="Return after at most this many seconds.")] = 30


def _describe(args: _TerminalCommand) -> CallDescription:
    if args.command:
        command = _command(args)
        return CallDescription(" ".join(command.split()), "Bash", {"command": command})
    if args.type:
        return CallDescription(f"types {args.type!r}", "Bash", {"type": args.type}, repeatable=True)
    words = {"CTRL_C": "Ctrl-C", "KILL": "ends the shell"}.get(args.signal, "more output")
    return CallDescription(words, "Bash", {"signal": args.signal}, repeatable=True, kind="own")


async def _run(context: Context, args: _TerminalCommand) -> Result:
    if bool(args.command) + bool(args.type) + bool(args.signal) > 1:
        raise ToolError("give a command, or something to type, or a signal: not two at once")
    terminal = context.terminal
    if args.command:
        command = _command(args)
        return _result(command, await terminal.run(command, args.wait_s))
    if args.signal == "KILL":
        await terminal.close()
        return Result("The shell and everything it ran were stopped; the next command gets a new one.")
    if args.type:
        await terminal.type(args.type)
    elif args.signal:
        await terminal.interrupt()
    return _result("", await terminal.more(args.wait_s))


def _command(args: _TerminalCommand) -> str:
    if args.cwd.strip() in ("", "."):
        return args.command
    return f"cd -- {shlex.quote(args.cwd)} && {{\n{args.command}\n}}"


def _result(command: str, output: ShellOutput) -> Result:
    state = "still running" if output.exit_code is None else f"exit code {output.exit_code}, in {output.cwd}"
    return Result(
        f"{output.text}\n({state})".lstrip("\n"),
        argv=("bash", "-c", command) if command else (),
        exit_code=output.exit_code,
        truncated=output.truncated,
        container=output.container,
    )


RUN_TERMINAL_COMMAND = Tool(
    "run_terminal_command",
    "Run a command in a bash that keeps its directory and variables from call to call. "
    "A command that takes longer than wait_s goes on: call again without a command to read what it writes next, "
    "with `type` to answer it, or with signal CTRL_C to interrupt it.",
    "command",
    _TerminalCommand,
    _describe,
    _run,
)
"""One terminal per turn; the directory is kept from turn to turn."""


class _Bash(Arguments, frozen=True):
    command: Annotated[str, Meta(min_length=1, max_length=8000, description="A program and its arguments.")]
    limit_s: Annotated[int, Meta(ge=1, le=600, description="Stop it after this many seconds.")] = 60


def bash(allowed: Sequence[str]) -> Tool:
    """Runs one program with its arguments, without a shell. ``allowed`` are the programs that may run."""
    return Tool(
        "bash",
        "Run one program in the repository and read what it writes. There is no shell: no pipes, no redirections, "
        f"no &&, no variables. These programs may be run: {', '.join(sorted(allowed))}.",
        "command",
        _Bash,
        lambda args: CallDescription(args.command, "Bash", {"command": args.command}),
        partial(_bash, frozenset(allowed)),
    )


async def _bash(allowed: frozenset[str], context: Context, args: _Bash) -> Result:
    words = _split(args.command)
    if words[0] not in allowed:
        raise ToolError(f"{words[0]} may not be run here (native.allowedPrograms): use another tool")
    ran = await context.programs.run(words, limit_bytes=BASH_BYTES, limit_s=args.limit_s, network=True)
    text, cut = shorten_output(ran.output)
    note = f"\n({ran.note})" if ran.note else ""
    return Result(
        f"{text}\n(exit code {ran.exit_code}){note}".lstrip("\n"),
        argv=words,
        exit_code=ran.exit_code,
        truncated=cut or ran.truncated,
    )


def _split(command: str) -> tuple[str, ...]:
    """Split a command into words as a shell would. Raises ToolError for anything that only a shell can do."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=OPERATORS)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = tuple(lexer)
    except ValueError as error:
        raise ToolError(f"not a valid command: {str(error).lower()}") from None
    if any(word and not word.strip(OPERATORS) for word in words) or "\n" in command.strip():
        raise ToolError("there is no shell here: no pipes, no redirections, no && and no ;: run one program")
    if not words:
        raise ToolError("the command is empty")
    return words


class _UseSkill(Arguments, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=64, description="The skill's name.")]
    arguments: Annotated[str, Meta(max_length=20_000, description="What to use it on, in words.")] = ""


class _SkillOutput(msgspec.Struct, frozen=True):
    text: str


def use_skill(library: Library) -> Tool:
    """Instructions are returned as the tool's result; a program runs in the sandbox, without network and keys."""
    skills = library.enabled()
    skill_lines = "\n".join(
        f"- {name}: {skill.description[:DESCRIBED_CHARS]}" for name, skill in sorted(skills.items())
    )
    return Tool(
        "use_skill",
        f"Learn how something is done here before you do it. The skills:\n{skill_lines}",
        # A call that may run a program needs the same permission as a command.
        "command" if any(skill.kind == "code" for skill in skills.values()) else "own",
        _UseSkill,
        lambda args: CallDescription(args.name, "Skill", {"skill": args.name, "arguments": args.arguments}),
        partial(_use, library),
    )


async def _use(library: Library, context: Context, args: _UseSkill) -> Result:
    skills = await asyncio.to_thread(library.enabled)
    skill = skills.get(args.name)
    if skill is None:
        raise ToolError(
            f"there is no skill {args.name!r}; the skills are: {', '.join(sorted(skills)) or 'none'}"
        )
    if skill.kind == "prompt":
        return Result(f"The skill {skill.name}; go on by it:\n\n{skill.instructions}")
    request = msgspec.json.encode({"arguments": args.arguments, "workdir": str(context.workdir)})
    argv = ("python3", "-I", "-c", skill.program)
    ran = await context.programs.run(argv, stdin=request, limit_bytes=SKILL_BYTES, limit_s=SKILL_LIMIT_S)
    argv_shown = ("python3", f"{skill.name}/skill.py")
    if ran.exit_code != 0 or ran.truncated:
        why = ran.note or f"it ended with exit code {ran.exit_code}"
        text = f"The skill {skill.name} did not work: {why}\n{ran.output[-2000:]}"
        return Result(text, ok=False, argv=argv_shown, exit_code=ran.exit_code, truncated=ran.truncated)
    return Result(_skill_answer(skill, ran), argv=argv_shown, exit_code=0)


def _skill_answer(skill: Skill, ran: ProgramOutput) -> str:
    """The program's answer: the JSON object in its last line. Raises ToolError if there is none."""
    # Only a line feed: in a text of JSON, other ends of lines need no escape.
    last = ran.output.strip().rpartition("\n")[2]
    try:
        return msgspec.json.decode(last, type=_SkillOutput).text or "(no output)"
    except (msgspec.DecodeError, UnicodeError):
        raise ToolError(
            f'the skill {skill.name} did not end with a line of JSON such as {{"text": "…"}}'
        ) from None

"""bash: one program with its arguments, without a shell: the strict way."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from codebutler_worker.tools.display import told
from codebutler_worker.tools.port import Arguments, Context, Described, Kind, Result, ToolError

LIMIT_BYTES = 256 * 2**10
LONGEST_S = 600
OPERATORS = "();<>|&"


class BashArguments(Arguments, frozen=True):
    """What to run."""

    command: Annotated[str, Meta(min_length=1, max_length=8000, description="A program and its arguments.")]
    limit_s: Annotated[int, Meta(ge=1, le=LONGEST_S, description="End it after so many seconds.")] = 60


class Bash:
    """``allowed`` are the programs that may be run."""

    name = "bash"
    kind: Kind = "command"
    arguments = BashArguments

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = frozenset(allowed)
        self.description = (
            "Run one program in the repository and read what it writes. There is no shell: no pipes, no redirections, "
            f"no &&, no variables. These programs may be run: {', '.join(sorted(allowed))}."
        )

    def describe(self, args: BashArguments) -> Described:
        """See the port."""
        return Described(args.command, "Bash", {"command": args.command})

    async def run(self, context: Context, args: BashArguments) -> Result:
        """See the port. Raises ToolError for a program that is not allowed and for what only a shell could read."""
        words = split(args.command)
        if words[0] not in self._allowed:
            raise ToolError(f"{words[0]} may not be run here (native.allowedPrograms): use another tool")
        ran = await context.programs.run(words, limit_bytes=LIMIT_BYTES, limit_s=args.limit_s, network=True)
        text, cut = told(ran.output)
        note = f"\n({ran.note})" if ran.note else ""
        return Result(
            f"{text}\n(exit code {ran.exit_code}){note}".lstrip("\n"),
            argv=words,
            exit_code=ran.exit_code,
            truncated=cut or ran.truncated,
            container=ran.container,
        )


def split(command: str) -> tuple[str, ...]:
    """The words of a command as a shell would split it. Raises ToolError for what only a shell could do. Pure."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=OPERATORS)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = tuple(lexer)
    except ValueError as error:
        raise ToolError(f"this is no command: {str(error).lower()}") from None
    if any(word and not word.strip(OPERATORS) for word in words) or "\n" in command.strip():
        raise ToolError("there is no shell here: no pipes, no redirections, no && and no ;: run one program")
    if not words:
        raise ToolError("there is nothing to run")
    return words

"""use_skill: the instructions of a skill, or what its program says."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta

from codebutler.config.skills import Skill
from codebutler_worker.skills.library import Library
from codebutler.config.skills.skill import Skill
from codebutler_worker.skills import Library
from codebutler_worker.tools.port import Arguments, Context, Described, Kind, Ran, Result, ToolError

LIMIT_BYTES = 64 * 2**10
LIMIT_S = 60.0
MAX_ARGUMENT_CHARS = 20_000
DESCRIBED_CHARS = 200


class UseSkillArguments(Arguments, frozen=True):
    """Which skill, for what."""

    name: Annotated[str, Meta(min_length=1, max_length=64, description="The skill's name.")]
    arguments: Annotated[
        str, Meta(max_length=MAX_ARGUMENT_CHARS, description="What it is to be used on, in words.")
    ] = ""


class _Said(msgspec.Struct, frozen=True):
    text: str


class UseSkill:
    """Instructions come as the tool's result; a program runs behind the walls, without network and keys."""

    name = "use_skill"
    arguments = UseSkillArguments

    def __init__(self, library: Library) -> None:
        self._library = library
        skills = library.enabled()
        # A call that may run a program is asked for like one.
        self.kind: Kind = "command" if any(skill.kind == "code" for skill in skills.values()) else "own"
        listed = "\n".join(
            f"- {name}: {skill.description[:DESCRIBED_CHARS]}" for name, skill in sorted(skills.items())
        )
        self.description = f"Learn how something is done here before you do it. The skills:\n{listed}"

    def describe(self, args: UseSkillArguments) -> Described:
        """See the port."""
        return Described(args.name, "Skill", {"skill": args.name, "arguments": args.arguments})

    async def run(self, context: Context, args: UseSkillArguments) -> Result:
        """See the port. Raises ToolError for a skill that is not there or switched off."""
        skills = await asyncio.to_thread(self._library.enabled)
        skill = skills.get(args.name)
        if skill is None:
            raise ToolError(
                f"there is no skill {args.name!r}; there are {', '.join(sorted(skills)) or 'none'}"
            )
        if skill.kind == "prompt":
            return Result(f"The skill {skill.name}; go on by it:\n\n{skill.instructions}")
        return await self._execute(context, skill, args.arguments)

    async def _execute(self, context: Context, skill: Skill, arguments: str) -> Result:
        given = msgspec.json.encode({"arguments": arguments, "workdir": str(context.workdir)})
        argv = ("python3", "-I", "-c", skill.program)
        ran = await context.programs.run(argv, stdin=given, limit_bytes=LIMIT_BYTES, limit_s=LIMIT_S)
        shown = ("python3", f"{skill.name}/skill.py")
        if ran.exit_code != 0 or ran.truncated:
            why = ran.note or f"it ended with exit code {ran.exit_code}"
            text = f"The skill {skill.name} did not work: {why}\n{ran.output[-2000:]}"
            return Result(text, ok=False, argv=shown, exit_code=ran.exit_code, truncated=ran.truncated)
        return Result(answer_of(skill, ran), argv=shown, exit_code=0)


def answer_of(skill: Skill, ran: Ran) -> str:
    """What the program says: the JSON object in its last line. Pure. Raises ToolError if there is none."""
    lines = ran.output.strip().splitlines()
    try:
        return msgspec.json.decode(lines[-1] if lines else "", type=_Said).text or "(it says nothing)"
    except (msgspec.DecodeError, UnicodeError):
        raise ToolError(
            f'the skill {skill.name} did not end with a line of JSON such as {{"text": "…"}}'
        ) from None

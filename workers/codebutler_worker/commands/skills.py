"""``!skills``: what agents have been taught, and having one of them do it that way."""

from __future__ import annotations

import asyncio
import difflib

from codebutler.config.permission import admitted, may
from codebutler.config.schema import RepoSettings
from codebutler.domain.message import said
from codebutler.domain.model import Command, Prompt, Request
from codebutler.text.markup import clip, plain
from codebutler_worker.commands.asked import Asked
from codebutler_worker.desk.deferred import Reply
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.naming import agent_name, using
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.lines import code, one_line
from codebutler_worker.skills.library import Library
from codebutler_worker.store.rows import DeferredRow

NAME = "skills"
RUNS_WITH = "agent"
"""The prefix of the agent that can run a skill's program."""
DESCRIPTION_CHARS = 140
REPLY_CHARS = 3_500


def taught(request: Request, user: str, settings: RepoSettings, library: Library) -> Request:
    """``!skills NAME WORDS`` as a prompt that holds the skill, for those who may use its agent; any other request as
    it is. Rules are about agents, and the parent, which asks them, does not know that this will be a prompt."""
    if not isinstance(request, Command) or request.name != NAME or not request.argument.strip():
        return request
    from codebutler_worker.skills.prompting import prompt_of

    name, *rest = request.argument.split(None, 1)
    skill = library.enabled().get(name.lower())
    if skill is None:
        return request
    prefix = RUNS_WITH if skill.kind == "code" else None
    config = settings.config
    where = using(config, settings.channel_id, agent_name(config, prefix))
    if not may(admitted(user), "skill", where).allowed:
        return request
    return Prompt(text=prompt_of(skill, rest[0] if rest else ""), prefix=prefix)


def run(asked: Asked) -> Todo:
    """The list, or why a named one cannot be used: otherwise it is a prompt."""
    return asked.defer(asked.argument)


async def answer(desk: Desk, command: DeferredRow) -> Reply:
    """What there is, each with what it is for."""
    found = await asyncio.to_thread(desk.skills.found)
    enabled = found.enabled(desk.settings.config.skills.disabled)
    if command.argument:
        return Reply((said(_refusal(command.argument.split()[0].lower(), tuple(enabled))),))
    lines = [
        f"• {code(name)} {plain(one_line(skill.description, DESCRIPTION_CHARS))}"
        + (" _(runs a program; with `agent:`)_" if skill.kind == "code" else "")
        for name, skill in sorted(enabled.items())
    ]
    told = ["🎓 Say `!skills NAME what to do`:", *lines] if lines else ["There are no skills here."]
    if found.untrusted:
        names = ", ".join(code(name) for name in found.untrusted)
        told.append(f"⚠️ Not used before somebody runs `codebutler trust` on the machine: {names}")
    told += [f"⚠️ {plain(problem)}" for problem in found.problems]
    return Reply((said(clip("\n".join(told), REPLY_CHARS)),))


def _refusal(name: str, names: tuple[str, ...]) -> str:
    if name in names:
        return "You are not authorized to use the agent that this skill is for."
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean `!skills {near[0]}`?" if near else "`!skills` lists what there is."
    return f"There is no skill {code(name)} here. {hint}"

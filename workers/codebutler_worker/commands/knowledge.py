"""What agents get besides the prompt: ``!memory`` shows and deletes facts, ``!skills`` lists and uses skills."""

from __future__ import annotations

import asyncio
import difflib
from pathlib import Path

from codebutler.config.memory import FactChange, MemoryFile, facts_of
from codebutler.config.permission import admitted, may
from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import said
from codebutler.domain.model import Command, Prompt, Request
from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef
from codebutler.text.markup import clip, message_link, plain
from codebutler.text.wording import one_line
from codebutler_worker.commands.showing import time_since
from codebutler_worker.commands.table import Invocation
from codebutler_worker.memory import keeping
from codebutler_worker.present.cards import NOTHING, NOTHING_TO_UNDO, Remembered, listed
from codebutler_worker.present.lines import code
from codebutler_worker.runtime.deferred import CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import Todo, agent_name, using
from codebutler_worker.skills import Library, prompt_of
from codebutler_worker.store.rows import REPO_SCOPE, DeferredRow, FactRow
from codebutler_worker.store.unit_of_work import UnitOfWork

SEARCHED_TURNS = 50
SKILLS = "skills"
RUNS_WITH = "agent"
"""The prefix of the agent that can run a skill's program."""
DESCRIPTION_CHARS = 140
REPLY_CHARS = 3_500

answer_memory = keeping.answer


def memory(invocation: Invocation) -> Todo:
    """Show all, delete one, or undo the last change."""
    word, _, rest = invocation.argument.lower().partition(" ")
    try:
        text = MemoryFile(Path(invocation.settings.path)).read()
    except CodeButlerError as error:
        return invocation.reply(f"❌ {plain(str(error))}")
    match word:
        case "forget":
            return _forget(invocation, text, int(rest))
        case "undo":
            return _undo(invocation)
        case _:
            return _show(invocation, text)


def _show(invocation: Invocation, text: str) -> Todo:
    facts, stored, uow = facts_of(text), _visible_facts(invocation), invocation.uow
    lines = {row.line: row for row in uow.memory_lines.find()}
    entries = [
        Remembered(fact, _origin(uow, row.channel_id, row.thread, row.added_at) if row else "")
        for fact, row in ((fact, lines.get(fact)) for fact in facts)
    ]
    entries += [
        Remembered(f"{row.key}: {row.value}", _origin(uow, row.channel_id, row.thread, row.updated_at))
        for row in stored
    ]
    others = sum(bool(line.strip()) for line in text.splitlines()) - len(facts)
    return invocation.reply(listed(entries, others) if entries or others else NOTHING)


def _forget(invocation: Invocation, text: str, number: int) -> Todo:
    facts, stored = facts_of(text), _visible_facts(invocation)
    if not 1 <= number <= len(facts) + len(stored):
        return invocation.reply(f"There is no fact {number}: `!memory` lists them.")
    if number > len(facts):
        fact = stored[number - len(facts) - 1]
        invocation.uow.facts.delete(scope=fact.scope, key=fact.key)
        return invocation.reply(f"🧠 Forgotten: {code(f'{fact.key}: {fact.value}')}")
    return _request_change(invocation, (FactChange(facts[number - 1]),))


def _undo(invocation: Invocation) -> Todo:
    """The newest change, made or pending; an undo is a change itself, so it can be undone."""
    newest = invocation.uow.memories.find(newest=SEARCHED_TURNS)
    row = next((row for row in newest if row.state in ("made", "wanted") and keeping.changes_of(row)), None)
    if row is None:
        return invocation.reply(NOTHING_TO_UNDO)
    return _request_change(invocation, tuple(change.inverse for change in reversed(keeping.changes_of(row))))


def _request_change(invocation: Invocation, changes: tuple[FactChange, ...]) -> Todo:
    command = keeping.request_change(
        invocation.uow, invocation.place, invocation.settings.channel_id, invocation.user, changes
    )
    return Todo(deferred=(command,))


def _visible_facts(invocation: Invocation) -> list[FactRow]:
    """What agents get when this person asks. Nobody else sees this person's own facts."""
    facts, user = invocation.uow.facts, invocation.user
    own = facts.find(scope=user) if user and invocation.place.only_for else []
    return [*facts.find(scope=REPO_SCOPE), *own]


def _origin(uow: UnitOfWork, channel_id: ConversationRef, thread: MessageRef, at: str) -> str:
    """Its age, with a link to the thread it comes from."""
    age = f"{time_since(uow, at)} ago"
    return message_link(channel_id, thread, age) if thread else age


def expand_skill(request: Request, user: PersonRef, settings: RepoSettings, library: Library) -> Request:
    """``!skills NAME WORDS`` as a prompt that holds the skill, for those who may use its agent; any other
    request unchanged. Rules are about agents, and the parent, which checks them, does not know that this
    becomes a prompt."""
    if not isinstance(request, Command) or request.name != SKILLS or not request.argument.strip():
        return request
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


def skills(invocation: Invocation) -> Todo:
    """The list, or why a skill cannot be used; otherwise it becomes a prompt."""
    return invocation.defer(invocation.argument)


async def answer_skills(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """The skills, each with its purpose."""
    found = await asyncio.to_thread(runtime.skills.found)
    enabled = found.enabled(runtime.settings.config.skills.disabled)
    if command.argument:
        return CommandReply((said(_refusal(command.argument.split()[0].lower(), tuple(enabled))),))
    lines = [
        f"• {code(name)} {plain(one_line(skill.description, DESCRIPTION_CHARS))}"
        + (" _(runs a program; with `agent:`)_" if skill.kind == "code" else "")
        for name, skill in sorted(enabled.items())
    ]
    text_lines = ["🎓 Say `!skills NAME what to do`:", *lines] if lines else ["There are no skills here."]
    if found.untrusted:
        names = ", ".join(code(name) for name in found.untrusted)
        text_lines.append(f"⚠️ Not used until somebody runs `codebutler trust` on the machine: {names}")
    text_lines += [f"⚠️ {plain(problem)}" for problem in found.problems]
    return CommandReply((said(clip("\n".join(text_lines), REPLY_CHARS)),))


def _refusal(name: str, names: tuple[str, ...]) -> str:
    if name in names:
        return "You are not authorized to use the agent that this skill is for."
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean `!skills {near[0]}`?" if near else "`!skills` lists the available ones."
    return f"There is no skill {code(name)} here. {hint}"

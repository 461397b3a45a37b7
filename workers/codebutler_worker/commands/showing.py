"""Commands that reply at once: ``!help`` ``!ping`` ``!status`` ``!list`` ``!output`` ``!agents``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType

import msgspec

from codebutler.config.programs import DEFAULT_MODEL, program_names, program_of, word_for
from codebutler.config.schema import Config
from codebutler.domain.command_help import nearest
from codebutler.domain.commands import ALL, IN_THREADS, word_of
from codebutler.domain.message import said
from codebutler.domain.model import OPERATOR, Post
from codebutler.text.markup import fence, message_link, plain
from codebutler.text.wording import load, one_line, span, today
from codebutler_worker.agents.survey import Survey
from codebutler_worker.commands.table import Invocation
from codebutler_worker.present.lines import code
from codebutler_worker.present.progress import SIGNS, answer
from codebutler_worker.runtime.budget import NOBODY, lines, overview, spent_today, used_today
from codebutler_worker.runtime.deferred import CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import LIVE, UNFINISHED, Todo, agent_name, words_of
from codebutler_worker.store.rows import BudgetAccount, ChoiceRow, DeferredRow, TurnRow, TurnState
from codebutler_worker.store.unit_of_work import UnitOfWork

LISTED = 10
LOOKED_AT = 200
OUTPUT_LOOKED_AT = 50
WORDS_CHARS = 80
NO_CONVERSATIONS = "No conversations here yet: write something."
NO_OUTPUT = "No run here has produced any output yet."
FILE_BY_MESSAGE = "Say `!output` in the channel to get the rest as a file."
_SIGNS: dict[TurnState, str] = {
    "queued": "⏳",
    "running": "👀",
    "waiting": "🔐",
    "parked": "⏸",
    "done": SIGNS["done"],
    "failed": SIGNS["failed"],
    "stopped": SIGNS["stopped"],
    "interrupted": SIGNS["interrupted"],
}


def usage(asked: Invocation) -> Todo:
    """``!help``: everything on one screen, or one command in detail."""
    name = asked.argument.lstrip("!").lower()
    if not name:
        # The operator is at a terminal, where there are no slash commands.
        slash = "" if asked.user == OPERATOR else f"{IN_THREADS} "
        default = asked.settings.config.agent.default
        shown = [
            f"Write a message: {default} works on it in this repository. Reply in the thread to continue.",
            "`claude: …` asks that agent. Commands:",
            *(f"`{word.example}`  {word.gist}" for word in ALL),
            f"_{slash}`!help COMMAND` shows details._",
        ]
        return asked.reply("\n".join(shown))
    word = word_of(name)
    if word is None:
        near = nearest(name)
        hint = f" Did you mean `!help {near}`?" if near else " `!help` lists the commands."
        return asked.reply(f"Unknown command {code('!' + name)}.{hint}")
    more = f" {word.about}" if word.about else ""
    return asked.reply(f"`{word.example}`: {word.gist}.{more}".replace("?.", "?"))


def ping(asked: Invocation) -> Todo:
    """``!ping``."""
    return asked.reply(f"pong from {plain(asked.settings.name)}")


def status(asked: Invocation) -> Todo:
    """``!status``: what is running here, and today's cost; one screen."""
    turns, config = asked.uow.turns.find(state=UNFINISHED), asked.settings.config
    states = [turn.state for turn in turns]
    parked = states.count("parked")
    waiting = states.count("queued") + parked
    shown = [
        f"**{plain(asked.settings.name)}**: "
        f"{load(states.count('running'), states.count('waiting'), waiting, parked)}",
        f"{_agent(config)} · worker {os.getpid()} is awake{_host(asked)}",
        *_chosen(asked),
        f"Today: {plain(_today(asked.uow, config))} · sandbox {config.sandbox.mode}",
        *_budget(asked),
        *(turn_line(asked.uow, turn) for turn in turns[:LISTED]),
    ]
    if len(turns) > LISTED:
        shown.append(f"… and {len(turns) - LISTED} more")
    return asked.reply("\n".join(shown))


def _host(asked: Invocation) -> str:
    """In a cluster, the machine."""
    return f" on {plain(asked.settings.host)}" if asked.settings.host else ""


def _agent(config: Config) -> str:
    name = config.agent.default
    if name != "claude":
        return f"Agent {name}"
    model = plain(config.claude.model) or "default model"
    return f"Agent claude ({model}, {config.claude.permission_mode})"


def _chosen(asked: Invocation) -> list[str]:
    """What the thread has chosen."""
    chosen = asked.uow.choices.get(asked.conversation) or ChoiceRow("")
    model = "" if chosen.model == DEFAULT_MODEL else chosen.model
    named = (("agent", chosen.agent), ("model", model), ("mode", word_for(chosen.mode)))
    parts = [f"{what} {code(value)}" for what, value in named if value]
    return [f"In this thread: {', '.join(parts)}"] if parts else []


def _today(uow: UnitOfWork, config: Config) -> str:
    """Including the repository's own limits."""
    spent = spent_today(uow, config)
    own = [line for line in lines(config.budget, spent.spent, NOBODY) if line.scope == "repo"]
    return today(msgspec.to_builtins(spent.used), {line.unit: line.limit for line in own})


def _budget(asked: Invocation) -> list[str]:
    """The limits of the person who asks and, within a thread, the thread's."""
    account = BudgetAccount(asked.user, asked.conversation or "")
    scopes = ("user", "thread") if asked.conversation is not None else ("user",)
    used = used_today(asked.uow, asked.settings.config, account)
    shown = overview([line for line in used if line.scope in scopes])
    return [plain(shown)] if shown else []


def latest(asked: Invocation) -> Todo:
    """``!list``: the newest run of each conversation, running ones first."""
    found = replace(asked, conversation=None).latest(LOOKED_AT)
    turns = sorted(found, key=lambda turn: turn.state not in ("running", "waiting", "queued"))
    if not turns:
        return asked.reply(NO_CONVERSATIONS)
    shown = [f"{turn_line(asked.uow, turn)}{_session(asked.uow, turn)}" for turn in turns[:LISTED]]
    more = [f"… and {len(turns) - LISTED} more"] if len(turns) > LISTED else []
    return asked.reply("\n".join(["The latest conversations here:", *shown, *more]))


def _session(uow: UnitOfWork, turn: TurnRow) -> str:
    session = uow.sessions.get(turn.conversation, turn.agent)
    return f" · {code(session.session_id)}" if session is not None and session.session_id else ""


def turn_line(uow: UnitOfWork, turn: TurnRow) -> str:
    """Icon, state, agent, the first words with a link to the thread, and the age."""
    words = plain(words_of(uow, turn, WORDS_CHARS)) or "…"
    where = message_link(turn.channel_id, turn.thread, words) if turn.thread else words
    sign = _SIGNS.get(turn.state, "•")
    return f"{sign} {turn.state} · {plain(turn.agent)} · {where} · {age(uow, turn)}"


def age(uow: UnitOfWork, turn: TurnRow) -> str:
    """When the run's state last changed: ``4m12s ago``, or how long it has been running."""
    shown = time_since(uow, turn.finished_at or turn.started_at or turn.created_at)
    return f"for {shown}" if turn.state in ("running", "waiting") else f"{shown} ago"


def time_since(uow: UnitOfWork, moment: str) -> str:
    """``4m12s``, or full days."""
    seconds = (uow.now - datetime.fromisoformat(moment)).total_seconds()
    return span(seconds) if seconds < 86_400 else f"{int(seconds // 86_400)}d"


def output(asked: Invocation) -> Todo:
    """The newest run's full text; while it is running, also its last step."""
    turns = asked.newest(OUTPUT_LOOKED_AT)
    live = next((turn for turn in turns if turn.state in LIVE), None)
    if live is not None:
        seen = f" Last step: {code(live.result)}." if live.result else ""
        asked.reply(f"👀 {plain(live.agent)} is still working.{seen}")
    turn = next((each for each in turns if each.state not in LIVE and each.result), None)
    if turn is None:
        return Todo() if live is not None else asked.reply(NO_OUTPUT)
    asked_for = plain(one_line(words_of(asked.uow, turn, 60)))
    foot = f"_{turn.state}: {plain(turn.agent)}, {asked_for}, {age(asked.uow, turn)}_"
    limit = asked.settings.config.output.max_chars_per_message
    text = turn.result or ""
    if turn.agent in program_names(asked.settings.config):
        # A program's output is not Markdown.
        text = fence(text)
    for operation in answer(text, foot, asked.place.thread, limit, redact=asked.uow.redact):
        if not asked.place.only_for:
            asked.uow.add(asked.place, operation)
        elif isinstance(operation, Post):
            asked.uow.add(asked.place, msgspec.structs.replace(operation, only_for=asked.place.only_for))
        else:
            asked.reply(FILE_BY_MESSAGE)
    return Todo()


NAMES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "claude": ("claude:", "Claude Code"),
        "kimi": ("kimi:", "Kimi Code"),
        "rehearsal": ("rehearsal:", "Practice agent"),
        "image": ("!create-image", "Images"),
    }
)
"""What people write for an agent, and what it is called."""


def agents(asked: Invocation) -> Todo:
    """Deferred: their programs have to be asked."""
    return asked.defer()


async def answer_agents(runtime: Runtime, _deferred: DeferredRow) -> CommandReply:
    """One line per agent."""
    shown = agent_lines(runtime.settings.config, await runtime.agents.survey())
    return CommandReply((said("\n".join(shown)),))


def agent_lines(config: Config, surveys: Sequence[Survey]) -> list[str]:
    """A heading, then each agent and each program, and whether it could run now."""
    shown = [_agent_line(one, config.agent.default) for one in surveys]
    programs = [program_of(config, name) for name in sorted(program_names(config))]
    shown += [
        f"▫️ {code(rule.prefix + ':')} · {plain(rule.description or rule.binary)}" for rule in programs if rule
    ]
    return ["Available agents:", *shown]


def _agent_line(one: Survey, default: str) -> str:
    written, name = NAMES.get(one.prefix, (f"{one.prefix}:", ""))
    parts = [
        " ".join(filter(None, ("✅" if one.ready else "❌", code(written), name, plain(one.version)))),
        plain(one.note),
        "the default here" if agent_name(Config(), one.prefix) == default else "",
    ]
    return " · ".join(part for part in parts if part)

"""Commands that reply at once: ``!help`` ``!ping`` ``!status`` ``!list`` ``!output`` ``!agents``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from codebutler.config.programs import DEFAULT_MODEL, mode_name, program_names, program_of
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
SEARCHED_TURNS = 200
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


def usage(invocation: Invocation) -> Todo:
    """``!help``: everything on one screen, or one command in detail."""
    name = invocation.argument.lstrip("!").lower()
    if not name:
        # The operator is at a terminal, where there are no slash commands.
        slash = "" if invocation.user == OPERATOR else f"{IN_THREADS} "
        default = invocation.settings.config.agent.default
        text_lines = [
            f"Write a message: {default} works on it in this repository. Reply in the thread to continue.",
            "`claude: …` asks that agent. Commands:",
            *(f"`{word.example}`  {word.gist}" for word in ALL),
            f"_{slash}`!help COMMAND` shows details._",
        ]
        return invocation.reply("\n".join(text_lines))
    word = word_of(name)
    if word is None:
        near = nearest(name)
        hint = f" Did you mean `!help {near}`?" if near else " `!help` lists the commands."
        return invocation.reply(f"Unknown command {code('!' + name)}.{hint}")
    more = f" {word.about}" if word.about else ""
    return invocation.reply(f"`{word.example}`: {word.gist}.{more}".replace("?.", "?"))


def ping(invocation: Invocation) -> Todo:
    """``!ping``."""
    return invocation.reply(f"pong from {plain(invocation.settings.name)}")


def status(invocation: Invocation) -> Todo:
    """``!status``: what is running here, and today's cost; one screen."""
    turns, config = invocation.uow.turns.find(state=UNFINISHED), invocation.settings.config
    states = [turn.state for turn in turns]
    parked = states.count("parked")
    waiting = states.count("queued") + parked
    host = f" on {plain(invocation.settings.host)}" if invocation.settings.host else ""  # in a cluster
    text_lines = [
        f"**{plain(invocation.settings.name)}**: "
        f"{load(states.count('running'), states.count('waiting'), waiting, parked)}",
        f"{_agent(config)} · worker {os.getpid()} is awake{host}",
        *_choices(invocation),
        f"Today: {plain(_spent_today(invocation.uow, config))} · sandbox {config.sandbox.mode}",
        *_limits(invocation),
        *(turn_line(invocation.uow, turn) for turn in turns[:LISTED]),
    ]
    if len(turns) > LISTED:
        text_lines.append(f"… and {len(turns) - LISTED} more")
    return invocation.reply("\n".join(text_lines))


def _agent(config: Config) -> str:
    name = config.agent.default
    if name != "claude":
        return f"Agent {name}"
    model = plain(config.claude.model) or "default model"
    return f"Agent claude ({model}, {config.claude.permission_mode})"


def _choices(invocation: Invocation) -> list[str]:
    chosen = invocation.uow.choices.get(invocation.conversation) or ChoiceRow("")
    model = "" if chosen.model == DEFAULT_MODEL else chosen.model
    pairs = (("agent", chosen.agent), ("model", model), ("mode", mode_name(chosen.mode)))
    parts = [f"{what} {code(value)}" for what, value in pairs if value]
    return [f"In this thread: {', '.join(parts)}"] if parts else []


def _spent_today(uow: UnitOfWork, config: Config) -> str:
    """Including the repository's own limits."""
    spent = spent_today(uow, config)
    own = [line for line in lines(config.budget, spent.spent, NOBODY) if line.scope == "repo"]
    return today(msgspec.to_builtins(spent.used), {line.unit: line.limit for line in own})


def _limits(invocation: Invocation) -> list[str]:
    """The limits of the person who asks and, within a thread, the thread's."""
    account = BudgetAccount(invocation.user, invocation.conversation or "")
    scopes = ("user", "thread") if invocation.conversation is not None else ("user",)
    used = used_today(invocation.uow, invocation.settings.config, account)
    text = overview([line for line in used if line.scope in scopes])
    return [plain(text)] if text else []


def latest(invocation: Invocation) -> Todo:
    """``!list``: the newest run of each conversation, running ones first."""
    uow, found = invocation.uow, replace(invocation, conversation=None).latest(SEARCHED_TURNS)
    turns = sorted(found, key=lambda turn: turn.state not in ("running", "waiting", "queued"))
    if not turns:
        return invocation.reply(NO_CONVERSATIONS)
    text_lines = [f"{turn_line(uow, turn)}{_session(uow, turn)}" for turn in turns[:LISTED]]
    more = [f"… and {len(turns) - LISTED} more"] if len(turns) > LISTED else []
    return invocation.reply("\n".join(["The latest conversations here:", *text_lines, *more]))


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
    elapsed = time_since(uow, turn.finished_at or turn.started_at or turn.created_at)
    return f"for {elapsed}" if turn.state in ("running", "waiting") else f"{elapsed} ago"


def time_since(uow: UnitOfWork, moment: str) -> str:
    """The age of a moment (ISO 8601)."""
    return format_age((uow.now - datetime.fromisoformat(moment)).total_seconds())


def format_age(seconds: float) -> str:
    """``4m12s``, or full days."""
    return span(seconds) if seconds < 86_400 else f"{int(seconds // 86_400)}d"


def output(invocation: Invocation) -> Todo:
    """The newest run's full text; while it is running, also its last step."""
    turns, uow, place = invocation.newest(OUTPUT_LOOKED_AT), invocation.uow, invocation.place
    live = next((turn for turn in turns if turn.state in LIVE), None)
    if live is not None:
        last_step = f" Last step: {code(live.result)}." if live.result else ""
        invocation.reply(f"👀 {plain(live.agent)} is still working.{last_step}")
    turn = next((each for each in turns if each.state not in LIVE and each.result), None)
    if turn is None:
        return Todo() if live is not None else invocation.reply(NO_OUTPUT)
    prompt = plain(one_line(words_of(uow, turn, 60)))
    foot = f"_{turn.state}: {plain(turn.agent)}, {prompt}, {age(uow, turn)}_"
    limit = invocation.settings.config.output.max_chars_per_message
    text = turn.result or ""
    if turn.agent in program_names(invocation.settings.config):
        # A program's output is not Markdown.
        text = fence(text)
    for operation in answer(text, foot, place.thread, limit, redact=uow.redact):
        if not place.only_for:
            uow.add(place, operation)
        elif isinstance(operation, Post):
            uow.add(place, replace(operation, only_for=place.only_for))
        else:
            invocation.reply(FILE_BY_MESSAGE)
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


def agents(invocation: Invocation) -> Todo:
    """Deferred: their programs have to be asked."""
    return invocation.defer()


async def answer_agents(runtime: Runtime, _deferred: DeferredRow) -> CommandReply:
    """One line per agent."""
    text_lines = agent_lines(runtime.settings.config, await runtime.agents.survey())
    return CommandReply((said("\n".join(text_lines)),))


def agent_lines(config: Config, surveys: Sequence[Survey]) -> list[str]:
    """A heading, then each agent and each program, and whether it could run now."""
    text_lines = [_agent_line(one, config.agent.default) for one in surveys]
    programs = [program_of(config, name) for name in sorted(program_names(config))]
    text_lines += [
        f"▫️ {code(rule.prefix + ':')} · {plain(rule.description or rule.binary)}" for rule in programs if rule
    ]
    return ["Available agents:", *text_lines]


def _agent_line(one: Survey, default: str) -> str:
    prefix, name = NAMES.get(one.prefix, (f"{one.prefix}:", ""))
    parts = [
        " ".join(filter(None, ("✅" if one.ready else "❌", code(prefix), name, plain(one.version)))),
        plain(one.note),
        "the default here" if agent_name(Config(), one.prefix) == default else "",
    ]
    return " · ".join(part for part in parts if part)

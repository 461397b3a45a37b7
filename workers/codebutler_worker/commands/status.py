"""``!status``: who works here, on what, and what it has cost today."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from codebutler.config.schema import Config
from codebutler.text.amounts import load, today
from codebutler.text.markup import plain
from codebutler_worker.budget.rules import NOBODY, lines, overview, spent_today, used_today
from codebutler_worker.commands.asked import Asked
from codebutler_worker.commands.describe import turn_line
from codebutler_worker.desk.draft import Draft
from codebutler_worker.desk.states import UNFINISHED
from codebutler_worker.desk.todo import Todo
from codebutler_worker.store.rows import Account, TurnState

LISTED = 10


def run(asked: Asked) -> Todo:
    """One screen."""
    turns = asked.draft.uow.turns.in_states(*UNFINISHED)
    config = asked.settings.config
    said = [
        f"**{plain(asked.settings.name)}**: {_load([turn.state for turn in turns])}",
        f"{_agent(config)} · worker {os.getpid()} is awake",
        f"Today: {plain(_today(asked.draft, config))} · sandbox {config.sandbox.mode}",
        *_budget(asked),
        *(turn_line(asked.draft, turn) for turn in turns[:LISTED]),
    ]
    if len(turns) > LISTED:
        said.append(f"… and {len(turns) - LISTED} more")
    return asked.reply("\n".join(said))


def _agent(config: Config) -> str:
    name = config.agent.default
    if name != "claude":
        return f"Agent {name}"
    model = plain(config.claude.model) or "its own choice of model"
    return f"Agent claude ({model}, {config.claude.permission_mode})"


def _load(states: Sequence[TurnState]) -> str:
    parked = states.count("parked")
    return load(states.count("running"), states.count("waiting"), states.count("queued") + parked, parked)


def _today(draft: Draft, config: Config) -> str:
    """With the repository's own limits."""
    spent = spent_today(draft.uow, draft.now, config)
    own = [line for line in lines(config.budget, spent.spent, NOBODY) if line.scope == "repo"]
    return today(msgspec.to_builtins(spent.used), {line.unit: line.limit for line in own})


def _budget(asked: Asked) -> list[str]:
    """The limits of whoever asks, and within a thread the thread's."""
    account = Account(asked.user, asked.conversation or "")
    scopes = ("user", "thread") if asked.conversation is not None else ("user",)
    used = used_today(asked.draft, asked.settings.config, account)
    shown = overview([line for line in used if line.scope in scopes])
    return [plain(shown)] if shown else []

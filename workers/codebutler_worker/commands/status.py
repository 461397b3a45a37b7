"""``!status``: who works here, on what, and what it has cost today."""

from __future__ import annotations

import os

from codebutler.config.schema import Config
from codebutler_worker.budget.today import used_today
from codebutler_worker.budget.wording import overview
from codebutler_worker.commands.asked import Asked
from codebutler_worker.commands.describe import turn_line
from codebutler_worker.desk.draft import Draft
from codebutler_worker.desk.states import UNFINISHED
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.lines import count, money, plain
from codebutler_worker.store.rows import Account

LISTED = 10


def run(asked: Asked) -> Todo:
    """One screen."""
    turns = asked.draft.uow.turns.in_states(*UNFINISHED)
    states = [turn.state for turn in turns]
    counts = [f"{states.count(state)} {state}" for state in ("running", "waiting", "queued")]
    if "parked" in states:
        counts.append(f"{states.count('parked')} parked")
    config = asked.settings.config
    lines = [
        f"*{plain(asked.settings.name)}*: {', '.join(counts)}",
        f"{_agent(config)} · worker {os.getpid()} is awake",
        f"{_today(asked.draft)} · sandbox {config.sandbox.mode}",
        *_budget(asked),
        *(turn_line(asked.draft, turn) for turn in turns[:LISTED]),
    ]
    if len(turns) > LISTED:
        lines.append(f"… and {len(turns) - LISTED} more")
    return asked.reply("\n".join(lines))


def _agent(config: Config) -> str:
    name = config.agent.default
    if name != "claude":
        return f"Agent {name}"
    model = plain(config.claude.model) or "its own choice of model"
    return f"Agent claude ({model}, {config.claude.permission_mode})"


def _today(draft: Draft) -> str:
    midnight = draft.stamp[:10]
    turns, usd = draft.uow.turns.cost_since(midnight)
    return f"Today (UTC): {count(turns, 'turn')}, {money(usd)}"


def _budget(asked: Asked) -> list[str]:
    """The repository's limits, those of whoever asks, and within a thread the thread's."""
    account = Account(asked.user, asked.conversation or "")
    lines = used_today(asked.draft, asked.settings.config, account)
    shown = overview([line for line in lines if asked.conversation is not None or line.scope != "thread"])
    return [shown] if shown else []

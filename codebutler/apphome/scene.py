"""What one person may see of all repositories. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from codebutler.apphome.view import RepoCard
from codebutler.config.rules import rules_allow
from codebutler.model import TurnNote
from codebutler.repos import RepoTable
from codebutler.supervisor.supervisor import RepoRow

TROUBLED = {
    "quarantined": "its worker keeps failing: `codebutler logs` on its machine says why",
    "stopped": "its worker is stopped: `codebutler logs` on its machine says why",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """What is known besides: the newest turns by repository, what is wrong with a channel, and how much of a
    repository's budget is used ("" without one)."""

    turns: Mapping[str, tuple[TurnNote, ...]]
    channel_trouble: Callable[[str], str]
    budget: Callable[[str], str]


def cards_for(user: str, table: RepoTable, rows: Iterable[RepoRow], shown: Shown) -> list[RepoCard] | None:
    """One card for each repository that the user may talk to; None if there is none."""
    states = {row.name: row.worker.state for row in rows}
    cards = [
        RepoCard(
            name=served.entry.name,
            channel=served.config.slack.channel_id,
            worker=states.get(served.entry.name, "stopped"),
            turns=shown.turns.get(served.entry.name, ()),
            budget=shown.budget(served.entry.name),
            trouble=shown.channel_trouble(served.config.slack.channel_id)
            or TROUBLED.get(states.get(served.entry.name, "stopped"), ""),
        )
        for served in table.served
        if user in served.config.slack.allowed_users
        and rules_allow(served.config, user, served.config.slack.channel_id, None)
    ]
    if not cards:
        return None
    absent = [
        RepoCard(each.entry.name, each.entry.channel_id, "stopped", (), each.problem)
        for each in table.unserved
    ]
    return [*cards, *(card for card in absent if table.named(card.name) is None)]

"""What one person may see of all repositories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from codebutler.apphome.turns import LatestTurns
from codebutler.apphome.view import RepoCard
from codebutler.budgets import Budgets
from codebutler.clock import Clock
from codebutler.config.rules import rules_allow
from codebutler.delivery.channels import Channels
from codebutler.model import TurnNote
from codebutler.repos import Repos, RepoTable
from codebutler.supervisor.supervisor import RepoRow, Supervisor
from codebutler.text.amounts import load

TROUBLED = {
    "quarantined": "its worker keeps failing: `codebutler logs` on its machine says why",
    "stopped": "its worker is stopped: `codebutler logs` on its machine says why",
}


class Cards:
    """What each person may see of the repositories, as things stand now."""

    def __init__(
        self,
        repos: Repos,
        supervisor: Supervisor,
        turns: LatestTurns,
        channels: Channels,
        budgets: Budgets,
        clock: Clock,
    ) -> None:
        self._repos = repos
        self._supervisor = supervisor
        self._turns = turns
        self._channels = channels
        self._budgets = budgets
        self._clock = clock

    def of(self, user: str) -> list[RepoCard] | None:
        """Their repositories; None for a stranger."""
        now = self._clock.now()
        shown = Shown(
            self._turns.by_repo, self._channels.trouble, lambda repo: self._budgets.words(repo, now)
        )
        return cards_for(user, self._repos.table, self._supervisor.rows(), shown)


@dataclass(frozen=True, slots=True)
class Shown:
    """What is known besides: the newest turns by repository, what is wrong with a channel, and what a repository has
    used today ("" where nobody has told)."""

    turns: Mapping[str, tuple[TurnNote, ...]]
    channel_trouble: Callable[[str], str]
    today: Callable[[str], str]


def cards_for(user: str, table: RepoTable, rows: Iterable[RepoRow], shown: Shown) -> list[RepoCard] | None:
    """One card for each repository that the user may talk to; None if there is none."""
    by_name = {row.name: row for row in rows}
    states = {name: row.worker.state for name, row in by_name.items()}
    cards = [
        RepoCard(
            name=served.entry.name,
            channel=served.config.slack.channel_id,
            worker=states.get(served.entry.name, "stopped"),
            turns=shown.turns.get(served.entry.name, ()),
            today=shown.today(served.entry.name),
            load=_load(by_name.get(served.entry.name)),
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


def _load(row: RepoRow | None) -> str:
    """ "" where there is nothing to do."""
    turns = row.turns if row else None
    if turns is None or not (turns.running or turns.waiting or turns.queued):
        return ""
    return load(turns.running, turns.waiting, turns.queued, turns.parked)

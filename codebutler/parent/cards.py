"""What one person may see of all repositories."""

from __future__ import annotations

from codebutler.chat.chats import Chats
from codebutler.config.permission import Person, Where, may
from codebutler.intake.repos import Served
from codebutler.parent.apphome.view import RepoCard
from codebutler.parent.budgets import Budgets
from codebutler.parent.parts import Parts
from codebutler.supervisor.supervisor import RepoRow, Supervisor
from codebutler.text.amounts import load

TROUBLED = {
    "quarantined": "its worker keeps failing: `codebutler logs` on its machine says why",
    "stopped": "its worker is stopped: `codebutler logs` on its machine says why",
}


class Cards:
    """What each person may see of all repositories, as things stand now."""

    def __init__(self, parts: Parts, supervisor: Supervisor, chats: Chats, budgets: Budgets) -> None:
        self._parts = parts
        self._supervisor = supervisor
        self._chats = chats
        self._budgets = budgets

    def of(self, user: str) -> list[RepoCard] | None:
        """One card for each repository that the user may talk to; None if there is none."""
        table, rows = self._parts.repos.table, {row.name: row for row in self._supervisor.rows()}
        cards = [
            self._card(served, rows.get(served.entry.name))
            for served in table.served
            if may(Person(user), "see", Where(served.config, served.channel_id)).allowed
        ]
        if not cards:
            return None
        absent = [
            RepoCard(each.entry.name, each.entry.channel_id, "stopped", (), each.problem)
            for each in table.unserved
        ]
        return [*cards, *(card for card in absent if table.named(card.name) is None)]

    def _card(self, served: Served, row: RepoRow | None) -> RepoCard:
        name, channel = served.entry.name, served.channel_id
        state = row.worker.state if row else "stopped"
        return RepoCard(
            name=name,
            channel=channel,
            worker=state,
            turns=self._parts.turns.by_repo.get(name, ()),
            today=self._budgets.words(name, self._parts.clock.now()),
            load=_load(row),
            trouble=self._chats.of(channel).sender.channels.trouble(channel) or TROUBLED.get(state, ""),
        )


def _load(row: RepoRow | None) -> str:
    """ "" where there is nothing to do."""
    turns = row.turns if row else None
    if turns is None or not (turns.running or turns.waiting or turns.queued):
        return ""
    return load(turns.running, turns.waiting, turns.queued, turns.parked)

"""What is used today, and of which budget, as the store tells it: the one count behind all that is shown."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from codebutler.config.schema import Config
from codebutler.config.zones import zone_of
from codebutler.protocol.messages import DayUse
from codebutler_worker.budget.rules import Line, counts, day_of, is_limited, lines
from codebutler_worker.desk.draft import Draft, iso
from codebutler_worker.store.rows import Account, Spent, TurnRow, Used
from codebutler_worker.store.unit_of_work import UnitOfWork

# For what counts for the whole repository.
NOBODY = Account("", "")


def account_of(turn: TurnRow) -> Account:
    """On whose account the turn goes."""
    return Account(turn.user_id, turn.conversation, turn.job)


@dataclass(frozen=True, slots=True)
class Today:
    """What the runs that began today have used, and until when it is today."""

    spent: tuple[Spent, ...]
    until: datetime

    @property
    def used(self) -> DayUse:
        """All of it together."""
        all_ = sum((one.used for one in self.spent), Used())
        return DayUse(runs=all_.turns, tokens=all_.tokens, usd=all_.usd, minutes=all_.minutes)


def spent_today(uow: UnitOfWork, now: datetime, config: Config, account: Account = NOBODY) -> Today:
    """Of all agents in the repository, and of what we asked of models ourselves; summed up for ``account``."""
    first, until = day_of(now, zone_of(config.budget.timezone))
    spent = uow.turns.spent_between(iso(first), iso(until), account)
    return Today(tuple(one for one in spent if counts(one.agent, config)), until)


def used_today(draft: Draft, config: Config, account: Account) -> tuple[Line, ...]:
    """Every limit that concerns the account, and how much of it is used today."""
    if not is_limited(config.budget):
        return ()
    return lines(config.budget, spent_today(draft.uow, draft.now, config, account).spent, account)

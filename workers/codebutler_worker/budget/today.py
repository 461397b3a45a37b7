"""What of today's budget is used, as the store tells it."""

from __future__ import annotations

from codebutler.config.schema import Config
from codebutler.config.zones import zone_of
from codebutler_worker.budget.rules import Line, counts, day_of, is_limited, lines
from codebutler_worker.desk.draft import Draft, iso
from codebutler_worker.store.rows import Account, TurnRow


def account_of(turn: TurnRow) -> Account:
    """On whose account the turn goes."""
    return Account(turn.user_id, turn.conversation, turn.job)


def used_today(draft: Draft, config: Config, account: Account) -> tuple[Line, ...]:
    """Every limit that concerns the account, and how much of it today's turns have used."""
    if not is_limited(config.budget):
        return ()
    first, until = day_of(draft.now, zone_of(config.budget.timezone))
    spent = draft.uow.turns.spent_between(iso(first), iso(until))
    return lines(config.budget, [one for one in spent if counts(one.agent, config)], account)

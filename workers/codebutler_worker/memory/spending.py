"""What the memory's model uses is on the repository's budget, as a job's that nobody wrote down."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from codebutler.config.zones import zone_of
from codebutler_worker.budget.rules import BudgetLine, day_of, used_today, used_up
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft
from codebutler_worker.store.rows import Account, ExpenseRow

if TYPE_CHECKING:
    from codebutler_worker.agents.native.model import TokenCount

PURPOSE = "(memory)"


class Purse:
    """Of one repository."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def closed(self, conversation: str) -> tuple[str, datetime] | None:
        """Why nothing may be asked about the conversation, and until when; None if something may."""
        line = await self._desk.commit(partial(self._used_up, conversation=conversation))
        if line is None:
            return None
        _, until = day_of(self._desk.clock.now(), zone_of(self._desk.settings.config.budget.timezone))
        return line.key, until

    async def paid(self, model: str, conversation: str, tokens: TokenCount) -> None:
        """Write down what an answer has used."""
        from codebutler_worker.agents.native.model import cost_usd, price_of

        cost = cost_usd(tokens, price_of(self._desk.settings.config.native.prices, model))
        await self._desk.commit(
            lambda draft: draft.uow.expenses.add(
                ExpenseRow(
                    purpose=PURPOSE,
                    conversation=conversation,
                    model=model,
                    input_tokens=tokens.input,
                    output_tokens=tokens.output,
                    cost_usd=cost,
                    at=draft.stamp,
                )
            )
        )

    def _used_up(self, draft: Draft, conversation: str) -> BudgetLine | None:
        account = Account("", conversation, PURPOSE)
        limits = used_today(draft, self._desk.settings.config, account)
        # It is no turn, and works no time: those limits are others'.
        return used_up([line for line in limits if line.unit in ("usd", "tokens")])

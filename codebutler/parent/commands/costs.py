"""``!costs``: what runs cost, by person, agent and day."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date

from codebutler.observe.ledger import KEYS, Period, by_day, sums, together, total, words
from codebutler.parent.commands.asked import Asked, AskedDirectly
from codebutler.parent.spending import WEEK_DAYS
from codebutler.protocol.capabilities import LedgerRow
from codebutler.protocol.messages import DayUse
from codebutler.text.amounts import amount
from codebutler.text.markup import person, plain

MOST = 10
LISTED_DAYS = 14
NOTHING = "No runs here in this period."


async def run(asked: Asked) -> str:
    """The costs of this repository."""
    ledgers, argument = asked.resources.ledgers, asked.argument.strip().lower().removesuffix("d")
    repo = asked.asker.repo
    during = ledgers.days(int(argument or WEEK_DAYS), repo)
    return summary(await ledgers.rows(during, [repo]), during)


def directly(asked: AskedDirectly) -> str:
    """The last week of each of a person's repositories, in a direct message."""
    lines = [f"**{plain(card.name)}** {words(card.week)}" for card in asked.cards if card.week.runs]
    used = together(card.week for card in asked.cards)
    return "\n".join([f"Last {WEEK_DAYS} days: {words(used)}", *lines])


def summary(rows: list[LedgerRow], during: Period) -> str:
    """The sums on a few lines. Pure."""
    used = total(rows)
    days = len(during.days)
    heading = f"**{'Today' if days == 1 else f'Last {days} days'}:** {words(used)}"
    if not rows:
        return f"{heading}\n{NOTHING}"
    lines = [
        heading,
        f"**By person:** {_listed({_who(row): row for row in rows}, sums(rows, KEYS['person']))}",
        f"**By agent:** {_named(sums(rows, KEYS['agent']))}",
    ]
    if 1 < days <= LISTED_DAYS:
        lines.append(f"**By day:** {_days(by_day(rows, during))}")
    return "\n".join(lines)


def _who(row: LedgerRow) -> str:
    return KEYS["person"](row)


def _listed(who: Mapping[str, LedgerRow], used: Mapping[str, DayUse]) -> str:
    shown = {}
    for name, use in used.items():
        row = who[name]
        shown[person(row.user) if row.user and not row.job else plain(name)] = use
    return _joined(shown.items())


def _named(used: Mapping[str, DayUse]) -> str:
    return _joined((plain(name), use) for name, use in used.items())


def _days(used: Mapping[date, DayUse]) -> str:
    return _joined(
        ((f"{day:%a %d %b}", use) for day, use in used.items() if use.runs or use.usd), most=LISTED_DAYS
    )


def _joined(items: Iterable[tuple[str, DayUse]], most: int = MOST) -> str:
    parts = [f"{name} {amount('usd', use.usd)} ({amount('turns', use.runs)})" for name, use in items]
    more = [f"… and {len(parts) - most} more"] if len(parts) > most else []
    return " · ".join([*parts[:most], *more])

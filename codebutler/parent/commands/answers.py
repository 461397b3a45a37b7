"""The parent's short commands: ``!jobs``, ``!in``, ``!at``, ``!move``, ``!new NAME``; ``!costs``, what runs cost by
person, agent and day; and ``help``, ``status`` and ``list`` in a direct message, for all of a person's repositories.
And the weekly summary of costs: the job that is due, and what it posts in the channel or to one person."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from hashlib import sha256

from msgspec.structs import replace

from codebutler.config.permission import Person, Where, may
from codebutler.domain.clock import zone_of
from codebutler.domain.commands import DIRECT
from codebutler.domain.errors import ChatError
from codebutler.domain.message import Message
from codebutler.domain.model import Post
from codebutler.domain.refs import NO_CHANNEL, ConversationRef, MessageRef
from codebutler.intake.direct import DirectThreads
from codebutler.intake.repos import Served
from codebutler.observe.ledger import KEYS, Period, by_day, sums, together, total, words
from codebutler.parent.apphome_page import NEEDS, SIGNS, done_line, need_line, repo_line
from codebutler.parent.commands.asked import Asked, AskedDirectly
from codebutler.parent.spending import WEEK_DAYS, Ledgers
from codebutler.protocol.capabilities import LedgerRow
from codebutler.protocol.messages import DayUse
from codebutler.schedule.commands import UnknownJobError, split_at, split_in
from codebutler.schedule.cron import parse
from codebutler.schedule.jobs import Job
from codebutler.schedule.scheduler import Publish
from codebutler.schedule.state import key_of
from codebutler.text.markup import code, person, plain
from codebutler.text.wording import amount

MAX_LISTED = 15
MOST = 10
LISTED_DAYS = 14
NOTHING = "No runs here in this period."
CATCH_UP_S = 24 * 3600.0
"""If nothing ran when it was due, it is posted up to a day later."""


async def jobs(asked: Asked) -> str:
    """List what is scheduled; run, pause or resume a job; or cancel a timer."""
    schedule, asker = asked.resources.schedule, asked.asker
    await schedule.ready()
    verb, _, name = asked.argument.strip().partition(" ")
    try:
        match verb.lower():
            case "run":
                return schedule.run(asker.repo, name, asker)
            case "pause":
                return await schedule.pause(asker.repo, name, f"by {person(asker.user)}")
            case "resume":
                return await schedule.resume(asker.repo, name)
            case "cancel":
                return await schedule.cancel(name.strip("` "), asker.repo)
    except UnknownJobError as error:
        return str(error)
    return schedule.listing(asker.repo)


async def later(asked: Asked) -> str:
    """Set a timer that runs after a delay."""
    await asked.resources.schedule.ready()
    try:
        moment, text = split_in(asked.argument, asked.resources.clock.now())
    except ValueError as error:
        return str(error)
    return await asked.resources.schedule.set_timer(moment, text, asked.asker)


async def at(asked: Asked) -> str:
    """Set a timer for a time of day."""
    schedule = asked.resources.schedule
    await schedule.ready()
    try:
        moment, text = split_at(asked.argument, asked.resources.clock.now(), schedule.zone)
    except ValueError as error:
        return str(error)
    return await schedule.set_timer(moment, text, asked.asker)


async def move(asked: Asked) -> str:
    """List the hosts that have the repository, or move it to one of them."""
    return await asked.resources.moves.answer(asked.argument, asked.asker)


async def new_repo(asked: Asked) -> str:
    """Make or clone a repository with its channel."""
    name, _, source = asked.argument.strip().partition(" ")
    return await asked.resources.new_repos.make(name, source.strip(), asked.asker)


def usage(asked: AskedDirectly) -> str:
    """How to talk to us here."""
    names = sorted(repo.name for repo in asked.repos.values())
    if len(names) == 1:
        where = f"Write a message: the agent of **{plain(names[0])}** works on it. Reply in the thread to continue."
    else:
        listed = ", ".join(f"**{plain(name)}**" for name in names[:MAX_LISTED])
        where = (
            f"Write a message, and I ask which repository it is about: {listed}. "
            f"{code(f'{names[0]}: …')} chooses it at once. Reply in the thread to continue."
        )
    return "\n".join(
        [
            where,
            *(
                f"`{word.name}`  {word.gist}, everywhere"
                for word in DIRECT.values()
                if word.direct != "answers.usage"
            ),
            "In a thread, all other commands work as in its channel: `!help` there lists them.",
            "_Everybody who may use a repository sees its conversations in `!list`, including those started here._",
        ]
    )


def status(asked: AskedDirectly) -> str:
    """Every repository on a line."""
    lines = []
    for card in asked.cards:
        trouble = f" · 🔴 {plain(card.trouble)}" if card.trouble else ""
        lines.append(repo_line(card) + trouble)
    return "\n".join(lines) or "No repository is served."


def latest(asked: AskedDirectly) -> str:
    """The latest conversations of all repositories, those that need somebody first."""
    pairs = [(card, turn) for card in asked.cards for turn in card.turns]
    newest = sorted(pairs, key=lambda pair: pair[1].at, reverse=True)
    needs = [need_line(card, turn, asked.now) for card, turn in newest if turn.state in NEEDS]
    rest = [done_line(card, turn, asked.now) for card, turn in newest if turn.state in SIGNS]
    lines = [*needs, *rest]
    left = len(lines) - MAX_LISTED
    return "\n".join([*lines[:MAX_LISTED], *([f"… and {left} more"] if left > 0 else [])]) or "Nothing yet."


async def costs(asked: Asked) -> str:
    """The costs of this repository."""
    ledgers, argument = asked.resources.ledgers, asked.argument.strip().lower().removesuffix("d")
    repo = asked.asker.repo
    during = ledgers.days(int(argument or WEEK_DAYS), repo)
    return summary(await ledgers.rows(during, [repo]), during)


def costs_directly(asked: AskedDirectly) -> str:
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
        f"**By person:** {_listed({KEYS['person'](row): row for row in rows}, sums(rows, KEYS['person']))}",
        f"**By agent:** {_named(sums(rows, KEYS['agent']))}",
    ]
    if 1 < days <= LISTED_DAYS:
        used_on = by_day(rows, during).items()
        by_days = ((f"{day:%a %d %b}", use) for day, use in used_on if use.runs or use.usd)
        lines.append(f"**By day:** {_joined(by_days, LISTED_DAYS)}")
    return "\n".join(lines)


def _listed(who: Mapping[str, LedgerRow], used: Mapping[str, DayUse]) -> str:
    shown = {}
    for name, use in used.items():
        row = who[name]
        shown[person(row.user) if row.user and not row.job else plain(name)] = use
    return _joined(shown.items())


def _named(used: Mapping[str, DayUse]) -> str:
    return _joined((plain(name), use) for name, use in used.items())


def _joined(items: Iterable[tuple[str, DayUse]], most: int = MOST) -> str:
    parts = [f"{name} {amount('usd', use.usd)} ({amount('turns', use.runs)})" for name, use in items]
    more = [f"… and {len(parts) - most} more"] if len(parts) > most else []
    return " · ".join([*parts[:most], *more])


WEEKLY = "weekly-costs"


def weekly_jobs(served: Iterable[Served]) -> Mapping[str, Job]:
    """The jobs of the repositories that want one (``ledger.weekly``), by key. They report, and no agent runs. Pure."""
    found = (_weekly(each) for each in served if each.config.ledger.weekly)
    return {key_of(job): job for job in found}


def _weekly(served: Served) -> Job:
    day, time = served.config.ledger.weekly.split()
    hour, minute = time.split(":")
    line = f"{int(minute)} {int(hour)} * * {day}"
    zone = served.config.budget.timezone
    return Job(
        name=WEEKLY,
        repo=served.entry.name,
        channel=served.channel_id,
        text="",
        cron=parse(line, zone_of(zone)),
        watch=(),
        label="Costs of the week",
        missed="once",
        catch_up_s=CATCH_UP_S,
        enabled=True,
        digest=sha256(f"{line} {zone}".encode()).hexdigest()[:16],
        reports=True,
    )


class WeeklyCosts:
    """Posts the weekly summaries. ``named`` finds a served repository."""

    def __init__(
        self,
        named: Callable[[str], Served | None],
        ledgers: Ledgers,
        direct: DirectThreads,
        publish: Publish,
    ) -> None:
        self._named = named
        self._ledgers = ledgers
        self._direct = direct
        self._publish = publish

    async def post(self, job: Job, key: str, unsure: bool) -> MessageRef:
        """The seven days before today, posted once for each ``key``. It notifies nobody. Raises ChatError."""
        served = self._named(job.repo)
        if served is None:
            raise ChatError(f"{job.repo} is no longer served", "not_served")
        days = self._ledgers.days(WEEK_DAYS + 1, job.repo)
        during = replace(days, until=days.until - timedelta(days=1))
        text = summary(await self._ledgers.rows(during, [job.repo]), during)
        message = Message(markdown=f"📊 **{plain(job.repo)}**\n{text}")
        return await self._publish(self._place(served), key, Post(message=message), unsure)

    def _place(self, served: Served) -> ConversationRef:
        """The person's direct conversation, if they may use the repository and it is known; else its channel."""
        user = served.config.ledger.weekly_to
        if not user or not may(Person(user), "see", Where(served.config, served.channel_id)).allowed:
            return served.channel_id
        known = self._direct.where(NO_CHANNEL, user)
        return known if known != NO_CHANNEL else served.channel_id
